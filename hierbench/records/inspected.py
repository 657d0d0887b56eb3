"""A record while it is checked: what is found of it, and what the checks of other records need of it."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hierbench.config.scored import Scored
from hierbench.config.spec import DatasetSpec, Spec
from hierbench.records.findings import Finding, Verdict
from hierbench.records.record import Record, State
from hierbench.runs.integrity import PREDICTIONS


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


@dataclass
class Inspected:
    """One record and what is found of it.

    Attributes:
        record: as its files say.
        finding: begins with what reading it found.
        facts: of its predictions, where these were read.
        targets: SHA-256 of those that its predictions say they are of.
        unchecked: metrics beyond the paper's that were kept, and not compared.
    """

    record: Record
    finding: Finding
    facts: Facts | None = None
    targets: str | None = None
    unchecked: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, record: Record) -> "Inspected":
        """Return a record to be checked; what is recorded is claimed until it is computed again."""
        verdict: Verdict = "rejected" if record.findings else "claimed"
        verdict = "unfinished" if record.state == "unfinished" else verdict
        return cls(record, Finding(record.label, record.id, verdict, [*record.findings], [*record.notes]))

    def as_record(self) -> Record:
        """Return the record with what was found of it."""
        finding, record = self.finding, self.record
        assert finding.verdict != "consistent", "said of rows and tables"
        state: State = "damaged" if record.damaged else finding.verdict
        return replace(record, state=state, findings=tuple(finding.reasons), notes=tuple(finding.notes))

    @property
    def folder(self) -> Path:
        """The run's folder."""
        return self.record.folder

    @property
    def id(self) -> str:
        """The run's id."""
        return self.record.id

    @property
    def spec(self) -> Spec | None:
        """The spec of a job."""
        return self.record.spec

    @property
    def scored(self) -> Scored | None:
        """What was scored, of no job."""
        return self.record.scored

    @property
    def metrics(self) -> Any:
        """The content of metrics.json, {} without a result."""
        return self.record.result

    @property
    def environment(self) -> Any:
        """The content of environment.json, {} without a result."""
        return self.record.environment

    @property
    def row(self) -> str:
        """What it shares with the other runs of its row, "" for what is no job."""
        return self.record.row

    @property
    def dataset(self) -> DatasetSpec:
        """The data that it is of."""
        assert self.record.dataset is not None
        return self.record.dataset

    @property
    def is_intact(self) -> bool:
        """Whether its files are those that status.json records."""
        return not self.record.findings

    @property
    def is_tested(self) -> bool:
        """Whether it has a result on the test split, which tuning runs do not."""
        return bool(self.metrics) and (self.spec is None or self.spec.split == "test")

    @property
    def predictions_digest(self) -> str | None:
        """The SHA-256 of its predictions.npz, as status.json records it."""
        return self.record.digest_of(PREDICTIONS)
