"""The findings of a verification, on runs, rows and tables, as data."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hierbench.runs.record import Record
from hierbench.runs.state import Note, NoteKind, State
from hierbench.utils.text import one_line

# Of a verified run; a damaged one is rejected.
VERIFIED = tuple(state for state in State if state not in (State.RECORDED, State.DAMAGED))
CAVEAT = (
    "Not known from any record: whether images of the test split were seen in training, how long hyperparameters were "
    "searched for; and, for runs that were not retrained, whether the predictions are of the training that the spec "
    "describes, on the machine that the environment names."
)

MAX_DIFFERENCES = 3  # differences of a table that its line names
MAX_FINDING_LENGTH = 400  # characters of a line's part that comes from a record

# With invented targets and predictions, a run is recomputed too.
TARGETS_ALONE = Note("targets come from the folder and were compared with nothing", "targets unknown")


@dataclass
class ConsistencyCheck:
    """A finding on one row or table; those on a run are in its record.

    Attributes:
        label: its name for people.
        state: "rejected" or None.
        reasons: why it is rejected; empty unless it is.
        notes: for readers, without reason to reject it.
        runs: of a row, the ids of its runs.
    """

    label: str
    state: State | None = None
    reasons: list[str] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    runs: list[str] = field(default_factory=list)

    @property
    def rejected(self) -> bool:
        """Whether there is a reason to reject it."""
        return self.state == State.REJECTED

    def reject(self, reason: str) -> None:
        """Add a reason, once."""
        self.state = State.REJECTED
        if reason not in self.reasons:
            self.reasons.append(reason)

    def note(self, text: str, kind: NoteKind = "other") -> None:
        """Add a note, once."""
        if text not in self.notes:
            self.notes.append(Note(text, kind))

    def why(self) -> str:
        """Return the reasons as text; of a table, which may differ in every cell, the first three."""
        most = len(self.reasons) if self.runs else MAX_DIFFERENCES
        more = f" and {len(self.reasons) - most} more" if len(self.reasons) > most else ""
        return "; ".join(one_line(reason, MAX_FINDING_LENGTH) for reason in self.reasons[:most]) + more

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON types."""
        verdict = self.state or "consistent"
        content = {"label": self.label, "verdict": verdict, "reasons": self.reasons, "notes": self.notes}
        return {**content, **({"runs": self.runs} if self.runs else {})}


@dataclass
class FolderReport:
    """All findings of one folder."""

    folder: Path
    runs: Sequence[Record] = ()
    rows: list[ConsistencyCheck] = field(default_factory=list)
    tables: list[ConsistencyCheck] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # about the whole folder

    @property
    def num_rejected(self) -> int:
        """How many runs, rows and tables are rejected."""
        findings = [*self.rows, *self.tables]
        return sum(run.rejected for run in self.runs) + sum(finding.rejected for finding in findings)

    @property
    def rejected_ids(self) -> frozenset[str]:
        """The ids of the runs that are rejected."""
        return frozenset(run.id for run in self.runs if run.rejected)

    def counts(self) -> dict[str, int]:
        """Return how many runs have each state."""
        return {state.value: sum(shown_state(run) == state for run in self.runs) for state in VERIFIED}

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON types."""
        return {
            "folder": str(self.folder),
            "counts": self.counts(),
            "rejected": self.num_rejected,
            "runs": [
                {
                    "id": run.id,
                    "label": run.label,
                    "verdict": shown_state(run),
                    "reasons": run.findings,
                    "notes": run.notes,
                }
                for run in self.runs
            ],
            "rows": [finding.as_json() for finding in self.rows],
            "tables": [finding.as_json() for finding in self.tables],
            "notes": self.notes,
        }


def shown_state(run: Record) -> State:
    """Return the state of a run that was verified: damaged ones are rejected."""
    return State.REJECTED if run.rejected else run.state
