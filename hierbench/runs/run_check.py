"""A run while it is checked: each check may replace its record by one with a finding or a note."""

from dataclasses import dataclass, field, replace
from typing import Self

from hierbench.config.spec import DatasetSpec
from hierbench.runs.record import Record
from hierbench.runs.state import Note, NoteKind, State


@dataclass(frozen=True)
class Facts:
    """Facts on a run's predictions for the other checks; the predictions are not kept.

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


@dataclass
class RunCheck:
    """A run, and facts on it for other checks.

    Attributes:
        record: with the findings so far.
        facts: of its predictions, where these were read.
        targets: SHA-256 of the targets that its predictions name.
        unchecked: metrics beyond the paper's that were kept, and not compared.
    """

    record: Record
    facts: Facts | None = None
    targets: str | None = None
    unchecked: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, record: Record) -> Self:
        """Return a run to be checked; its recorded numbers are claimed until they are computed again."""
        return cls(replace(record, state=State.CLAIMED) if record.state == State.RECORDED else record)

    def reject(self, reason: str) -> None:
        """Add a reason to reject the run, once."""
        record = self.record
        state = State.DAMAGED if record.damaged else State.REJECTED
        findings = record.findings if reason in record.findings else (*record.findings, reason)
        self.record = replace(record, state=state, findings=findings)

    def note(self, text: str, kind: NoteKind = "other") -> None:
        """Add a note for readers that is no reason to reject the run, once."""
        if text not in self.record.notes:
            self.record = replace(self.record, notes=(*self.record.notes, Note(text, kind)))

    def confirm(self, state: State) -> None:
        """Set its state."""
        self.record = replace(self.record, state=state)

    @property
    def id(self) -> str:
        """The id of the run."""
        return self.record.id

    @property
    def rejected(self) -> bool:
        """Whether there is a reason to reject it."""
        return self.record.rejected

    @property
    def dataset(self) -> DatasetSpec:
        """The data that the run is of."""
        return self.record.data

    @property
    def is_tested(self) -> bool:
        """Whether the run has a result on the test split, which tuning runs do not."""
        spec = self.record.spec
        return bool(self.record.result) and (spec is None or spec.split == "test")
