"""How much the numbers of a run can be trusted: one ordered type, from which marks, legends and ranking follow."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Literal, Self


class State(StrEnum):
    """The state of a run, from the strongest to the weakest; a row has the weakest of its finished runs."""

    RETRAINED = "retrained"  # trained again here with the same result
    RECOMPUTED = "recomputed"  # metrics computed again here from its predictions
    RECORDED = "recorded"  # in one's own folder, with the files as the run wrote them
    CLAIMED = "claimed"  # finished, without predictions to compute its metrics from
    UNFINISHED = "unfinished"  # planned, running or failed
    DAMAGED = "damaged"  # a file is not the one that the run wrote
    REJECTED = "rejected"  # something in it is impossible or contradicts the rest

    @property
    def is_finished(self) -> bool:
        """Whether a run has a result that is shown."""
        return self in FINISHED

    @property
    def is_ranked(self) -> bool:
        """Whether its row may be ranked."""
        return self in RANKED_STATES

    @property
    def mark(self) -> str:
        """The note beside the number of runs of a row, "" where it is ranked."""
        return {State.CLAIMED: "claimed", State.REJECTED: "not ranked"}.get(self, "")

    @property
    def words(self) -> str:
        """The words of a legend, after the number of runs."""
        return {
            State.RETRAINED: "trained again",
            State.RECOMPUTED: "recomputed from predictions",
            State.RECORDED: "as recorded",
            State.DAMAGED: "rejected and not counted",
            State.REJECTED: "rejected and not counted",
        }.get(self, self.value)


STATE_ORDER = tuple(State)
RANKED_STATES = (State.RETRAINED, State.RECOMPUTED, State.RECORDED)
FINISHED = (*RANKED_STATES, State.CLAIMED)


def weakest(states: Iterable[State]) -> State | None:
    """Return the weakest state; None if there is no state."""
    return max(states, key=STATE_ORDER.index, default=None)


NoteKind = Literal["other", "unfinished", "targets ship", "targets unknown"]


class Note(str):
    """A note on a run, a row or a table for readers, which is no reason to reject it.

    Attributes:
        kind: "other" is shown wherever there are notes. A leaderboard leaves out "unfinished", since it counts runs,
            and "targets ship"; it says "targets unknown" once for all runs.
    """

    kind: NoteKind

    def __new__(cls, text: str, kind: NoteKind = "other") -> Self:
        """Make a note of a text."""
        note = super().__new__(cls, text)
        note.kind = kind
        return note
