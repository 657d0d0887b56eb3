"""What a verification finds, of runs, rows and tables, as data."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from hierbench.config.spec import DatasetSpec
from hierbench.runs.record import Record
from hierbench.runs.state import State
from hierbench.utils.text import one_line

# Of a run that was verified; what is damaged is rejected.
VERIFIED = tuple(state for state in State if state not in (State.RECORDED, State.DAMAGED))
CAVEAT = (
    "Not known from any record: whether images of the test split were seen in training, how long hyperparameters were "
    "searched for, and, of what was not trained again, whether the predictions are of the training that the spec "
    "describes, and the machine that the environment names."
)

SHOWN = 3  # differences of a table that its line names
LONGEST = 400  # characters of a line's part that comes from a record

# Parts of notes that a table needs no line for: it shows it itself, or the verdict is none the weaker.
NOT_FINISHED = "is not finished"
TARGETS_KNOWN = "its targets are those of"
# What a table says once, of all runs: whoever makes up targets, and predictions of them, has a run recomputed.
TARGETS_ALONE = "targets come from the folder and were compared with nothing"


@dataclass
class Finding:
    """What is said of one run, row or table.

    Attributes:
        label: its name for people.
        id: of the run; "" for a row or table.
        state: of the run; of a row or table, "rejected" or None.
        reasons: why it is rejected; empty unless it is.
        notes: what a reader must know and no reason to reject it.
        runs: of a row, the ids of its runs.
    """

    label: str
    id: str = ""
    state: State | None = None
    reasons: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
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

    def note(self, line: str) -> None:
        """Add a note, once."""
        if line not in self.notes:
            self.notes.append(line)

    def why(self) -> str:
        """Return the reasons as text; of a table, which may differ in every cell, the first three."""
        most = len(self.reasons) if self.id or self.runs else SHOWN
        more = f" and {len(self.reasons) - most} more" if len(self.reasons) > most else ""
        return "; ".join(one_line(reason, LONGEST) for reason in self.reasons[:most]) + more

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON types."""
        own = {"id": self.id} if self.id else {}
        said = {
            "label": self.label,
            "verdict": self.state or "consistent",
            "reasons": self.reasons,
            "notes": self.notes,
        }
        return {**own, **said, **({"runs": self.runs} if self.runs else {})}


@dataclass(frozen=True)
class Facts:
    """What the other checks need of a run's predictions, which are not kept.

    Attributes:
        num: N examples.
        num_ranked: k classes that are ranked per example.
        ranking: SHA-256 of the ranked classes [N, k].
        targets: SHA-256 of the targets [N].
        compared: whether the targets were compared with those of prepared data.
    """

    num: int
    num_ranked: int
    ranking: str
    targets: str
    compared: bool

    @property
    def free_places(self) -> int:
        """How many places of the rankings a method was free to fill after the first."""
        return self.num * (self.num_ranked - 1)


@dataclass(kw_only=True)
class RunFinding(Finding):
    """What is found of one run; it begins with what reading it found.

    Attributes:
        record: the run, as its files say.
        facts: of its predictions, where these were read.
        targets: SHA-256 of those that its predictions say they are of.
        unchecked: metrics beyond the paper's that were kept, and not compared.
    """

    record: Record
    facts: Facts | None = None
    targets: str | None = None
    unchecked: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, record: Record) -> Self:
        """Return the finding of a run to be checked; what is recorded is claimed until it is computed again."""
        state = State.REJECTED if record.findings else State.CLAIMED
        state = State.UNFINISHED if record.state == State.UNFINISHED else state
        return cls(record.label, record.id, state, [*record.findings], [*record.notes], record=record)

    def as_record(self) -> Record:
        """Return the record with what was found of it."""
        assert self.state is not None
        state = State.DAMAGED if self.record.damaged else self.state
        return replace(self.record, state=state, findings=tuple(self.reasons), notes=tuple(self.notes))

    @property
    def dataset(self) -> DatasetSpec:
        """The data that the run is of."""
        assert self.record.dataset is not None
        return self.record.dataset

    @property
    def is_tested(self) -> bool:
        """Whether the run has a result on the test split, which tuning runs do not."""
        spec = self.record.spec
        return bool(self.record.result) and (spec is None or spec.split == "test")


@dataclass
class Report:
    """All findings of one folder."""

    folder: Path
    runs: Sequence[Finding] = ()
    rows: list[Finding] = field(default_factory=list)
    tables: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # about the whole folder

    @property
    def num_rejected(self) -> int:
        """How many runs, rows and tables are rejected."""
        return sum(finding.rejected for finding in (*self.runs, *self.rows, *self.tables))

    @property
    def rejected_ids(self) -> frozenset[str]:
        """The ids of the runs that are rejected."""
        return frozenset(run.id for run in self.runs if run.rejected)

    def counts(self) -> dict[str, int]:
        """Return how many runs have each state."""
        return {state.value: sum(run.state == state for run in self.runs) for state in VERIFIED}

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON types."""
        return {
            "folder": str(self.folder),
            "counts": self.counts(),
            "rejected": self.num_rejected,
            "runs": [finding.as_json() for finding in self.runs],
            "rows": [finding.as_json() for finding in self.rows],
            "tables": [finding.as_json() for finding in self.tables],
            "notes": self.notes,
        }
