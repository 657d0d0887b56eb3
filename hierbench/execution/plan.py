"""A plan: the jobs of a command with their labels and states, read once, and where they run."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hierbench.api.registry import LoadedMethod
from hierbench.config.recipe import Recipe
from hierbench.config.sections import FeatureType
from hierbench.execution.request import ResolvedRequest
from hierbench.execution.resources import Setting
from hierbench.runs.job import Job, JobState
from hierbench.runs.requests import Kind


@dataclass(frozen=True)
class PlannedJob:
    """A job of a plan, which may be blocked by missing data or weights.

    Attributes:
        row: the name of its row.
        type: of its model.
        seed: of the run.
        state: before the plan runs.
        trains: rather than re-ranks.
        job: None while its data or weights are not here.
    """

    row: str
    type: FeatureType
    seed: int
    state: JobState
    trains: bool = True
    job: Job | None = None

    @property
    def label(self) -> str:
        """Its name for users."""
        return f"{self.row} {self.type} seed {self.seed}"


@dataclass(frozen=True)
class Plan:
    """The jobs of a command, and where they run.

    Attributes:
        request: that it follows from.
        planned: the jobs, in the order in which they start.
        setting: folders, devices and processes, which follow from the number of jobs.
        title: begins the name of the parent run in MLflow.
        kind: of the recorded request.
        options: of the recorded request, beside those that all commands have.
        recorded_ids: ids of the recorded request.
        budgets: {row: how it was tuned} of the recorded request.
        networks: (recipe, method, type) of each network, whose parameters a dry run counts.
        notes: lines for users.
    """

    request: ResolvedRequest
    planned: Sequence[PlannedJob]
    setting: Setting
    title: str
    kind: Kind
    options: Mapping[str, Any] = field(default_factory=dict)
    recorded_ids: Sequence[str] = ()
    budgets: Mapping[str, Any] = field(default_factory=dict)
    networks: Sequence[tuple[Recipe, LoadedMethod, FeatureType]] = ()
    notes: Sequence[str] = ()

    @property
    def jobs(self) -> list[Job]:
        """The jobs, none if data or weights are not here."""
        return [line.job for line in self.planned if line.job is not None]

    @property
    def labels(self) -> dict[str, str]:
        """{id: label} of the jobs."""
        return {line.job.id: line.label for line in self.planned if line.job is not None}

    @property
    def states(self) -> dict[str, JobState]:
        """{id: state before the plan runs} of the jobs."""
        return {line.job.id: line.state for line in self.planned if line.job is not None}


def plan_jobs(
    jobs: Iterable[Job], states: Mapping[str, JobState], row_of: Callable[[Job], str] = lambda job: job.method.name
) -> list[PlannedJob]:
    """Return the lines of jobs with their states {id: state}."""
    return [PlannedJob(row_of(job), job.spec.type, job.spec.seed, states[job.id], job.trains, job) for job in jobs]


def plan_without_data(rows: Sequence[tuple[str, FeatureType, bool]], num_seeds: int, missing: str) -> list[PlannedJob]:
    """Return the lines of rows (name, type, whether it trains) without data or weights.

    They are blocked where the user has to bring these, as `missing` says.
    """
    return [
        PlannedJob(row, feature_type, seed, "blocked" if missing else "train" if trains else "rescore", trains)
        for seed in range(num_seeds)
        for row, feature_type, trains in rows
    ]
