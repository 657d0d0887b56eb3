"""Jobs that are run with progress bars and mirrored under one parent run in MLflow."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from hierbench.execution.job_inputs import extract_features
from hierbench.execution.plan import Plan
from hierbench.execution.run_job import Outcome
from hierbench.execution.scheduler import run_jobs
from hierbench.runs.job import Job
from hierbench.runs.mlflow_mirror import Mirror, default_uri
from hierbench.runs.record import Record
from hierbench.runs.record_reader import read_record
from hierbench.runs.store import HistoryRow
from hierbench.utils.console import Meter, duration
from hierbench.utils.text import is_path

RESCORE_WORK = 0.2  # of an epoch: the weight of re-ranking in the progress bar


@dataclass(frozen=True)
class Batch:
    """Jobs that run together.

    Attributes:
        jobs: of which those are run that are not done.
        labels: {id: label}.
        on_end: called after each job.
    """

    jobs: Sequence[Job]
    labels: Mapping[str, str]
    on_end: Callable[[Job], None] = field(default=lambda job: None)


class Execution:
    """The execution of a plan; `failed` has {id: error}."""

    def __init__(self, plan: Plan) -> None:
        options = plan.request.options
        self.plan = plan
        self.failed = dict[str, str]()
        self.meter = Meter(plan.request.recipe.dataset, 0.0)  # of the expected work in epochs, see `job_work`
        self.mirror = Mirror(
            options.mlflow or default_uri(options.runs),
            options.runs,
            plan.request.recipe.dataset,
            f"{plan.title} {time.strftime('%Y-%m-%d %H:%M:%S')}",
            lambda line: self.meter.say(f"warning: {line}"),
            _mirrored_parameters(plan),
        )
        self._counted = set[str]()
        self._labels = dict[str, str]()  # of the jobs so far, by id
        self._status = "KILLED"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.mirror.close(self._status)

    def run(self, batch: Batch) -> None:
        """Run the jobs that are not done, and mirror them."""
        self._status = "KILLED"
        labels = batch.labels
        self._labels |= labels
        running = dict[str, tuple[float, int]]()  # {id: (epochs done, epochs in all)}

        def progress(job: Job, done: float, total: int) -> None:
            running[job.id] = (done, total)
            self.meter.part(labels[job.id], done, total)

        def ended(job: Job, outcome: Outcome) -> None:
            self.count(job, labels[job.id])
            running.pop(job.id, None)
            record = self._read(job)
            self.meter.say(_describe_end(labels[job.id], outcome, record))
            self.mirror.write(record, labels[job.id], _read_history(record))
            batch.on_end(job)

        extract_features(batch.jobs, self.plan.setting)
        with self.meter:
            try:
                self.failed |= run_jobs(batch.jobs, self.plan.setting, progress, ended, self.meter.say)
            except KeyboardInterrupt:
                for run_id, (done, total) in running.items():
                    place = f"{labels[run_id]} at epoch {int(done)} of {total}"
                    self.meter.say(f"stopped: {place}; the same command resumes it")
                raise
            self._mirror_earlier(batch)
        self._status = "FAILED" if self.failed else "FINISHED"

    def describe_failures(self) -> list[str]:
        """Return a line for each job that has failed."""
        return [
            f"failed: {self._labels[run_id]}: {error} ({self.plan.setting.store.run(run_id).folder}/status.json)"
            for run_id, error in self.failed.items()
        ]

    def _mirror_earlier(self, batch: Batch) -> None:
        """Mirror the finished runs that an earlier command could not mirror."""
        for job in batch.jobs:
            if not self.mirror.has(job.id):
                record = self._read(job)
                if record.done:
                    self.mirror.write(record, batch.labels[job.id], _read_history(record))

    def _read(self, job: Job) -> Record:
        return read_record(self.plan.setting.store.run(job.id).folder)

    def expect_plan(self) -> None:
        """Add the work of the plan's jobs that are not cached to the progress bar."""
        states = self.plan.states
        self.meter.expect(sum(job_work(job) for job in self.plan.jobs if states[job.id] != "cached"))

    def leave_out(self, jobs: Sequence[Job]) -> None:
        """Take the expected work of jobs that were done before out of the progress bar."""
        self.meter.expect(-sum(job_work(job) for job in jobs if job.id not in self._counted))
        self._counted |= {job.id for job in jobs}

    def count(self, job: Job, label: str) -> None:
        """Count a job as done in the progress bar, once."""
        if job.id not in self._counted:
            self._counted.add(job.id)
            self.meter.end_part(label, job_work(job))


def _describe_end(label: str, outcome: Outcome, record: Record) -> str:
    """Return the line on a job that has ended."""
    if outcome.state == "failed":
        return f"failed: {label}: {outcome.error}"
    severity = record.metrics["mistake_severity"]
    shown = "-" if severity is None else f"{severity:.2f}"
    return f"done: {label}: top-1 {record.metrics['top1']:.2f}%, severity {shown} ({duration(record.seconds)})"


def _read_history(record: Record) -> Sequence[HistoryRow]:
    return record.history() if (record.folder / "history.csv").exists() else ()


def _mirrored_parameters(plan: Plan) -> dict[str, str]:
    """Return a command's options without folders: a path reveals the user's, and MLflow may be shared."""
    options = plan.request.options
    overrides = [override.split("=", 1) for override in options.overrides]
    methods = [Path(name).stem if is_path(name) else name for name in options.methods.split(",")]
    return {
        "dataset": plan.request.recipe.dataset,
        "methods": ",".join(methods),
        "types": options.types,
        "seeds": str(plan.request.num_seeds),
        "protocol": plan.request.recipe.protocol,
        "device": options.device,
        **{
            f"set.{key.strip()}": value.rpartition("/")[2] if value.startswith("/") else value
            for key, value in overrides
        },
    }


def job_work(job: Job) -> float:
    """Return the work of a job in the progress bar: its epochs."""
    return float(job.spec.train.rounds) if job.trains else RESCORE_WORK
