"""The trials of one search: which jobs run next, and how trials end."""

from collections.abc import Iterator, Mapping
from typing import Any

from optuna.trial import FrozenTrial, Trial, TrialState

from hierbench.execution.execution import Batch, Execution
from hierbench.runs.job import Job
from hierbench.runs.record_reader import read_record
from hierbench.runs.repair import is_finished
from hierbench.runs.requests import Request, extend_request
from hierbench.studies.tuning.search import OBJECTIVE, Search, Target
from hierbench.studies.tuning.trial_record import TrialRecord


class Batches:
    """The trials of one search, batch by batch."""

    def __init__(
        self, target: Target, search: Search, record: TrialRecord, execution: Execution, request: Request
    ) -> None:
        self.target = target
        self.search = search
        self.record = record
        self.execution = execution
        self.store = execution.plan.setting.store
        self.request = request
        self.labels: dict[str, str] = {}
        self._trials: dict[str, Trial] = {}  # by id of a job
        self._jobs: dict[int, list[Job]] = {}  # by number of a trial that has not ended

    def steps(self) -> Iterator[Batch]:
        """Yield the jobs of every configuration of the search, batch by batch; those before have run then."""
        while batch := self.search.next():
            for trial in batch:
                jobs = self._jobs[trial.number] = self.target.jobs(trial.params)
                self._trials |= {job.id: trial for job in jobs}
                self.labels |= {job.id: f"{self._label(trial)} seed {job.spec.seed}" for job in jobs}
                self.execution.leave_out([job for job in jobs if is_finished(job.spec, self.store)])
            jobs = [job for trial in batch for job in self._jobs[trial.number]]
            self.request = extend_request(self.store.root, self.request, [job.id for job in jobs])
            yield Batch(jobs, self.labels, on_end=self._on_end)
            for trial in batch:
                self._end(trial)
        yield from self._confirm()

    def _confirm(self) -> Iterator[Batch]:
        """Yield the further runs of the finalists, and compare these by the mean of all their runs."""
        tune = self.target.recipe.tune
        finalists = self.search.finalists(tune.finalists)
        jobs_of = {trial.number: self.target.jobs(trial.params, tune.runs, tune.finalist_runs) for trial in finalists}
        jobs = [job for trial in finalists for job in jobs_of[trial.number]]
        if not jobs:
            return
        for trial in finalists:
            self.labels |= {job.id: f"{self._label(trial)} seed {job.spec.seed}" for job in jobs_of[trial.number]}
        self.execution.leave_out([job for job in jobs if is_finished(job.spec, self.store)])
        self.request = extend_request(self.store.root, self.request, [job.id for job in jobs])
        yield Batch(jobs, self.labels, on_end=lambda job: self.execution.count(job, self.labels[job.id]))
        for trial in finalists:
            runs = jobs_of[trial.number]
            if not any(job.id in self.execution.failed for job in runs):
                self.search.confirm(trial, [read_record(self.store.run(job.id).folder).result["val"] for job in runs])

    def _on_end(self, job: Job) -> None:
        """End the trial of a job if all its runs are done."""
        trial = self._trials[job.id]
        if all(is_finished(run.spec, self.store) for run in self._jobs.get(trial.number, [])):
            self._end(trial)

    def _end(self, trial: Trial) -> None:
        """End a trial, record and show its result."""
        jobs = self._jobs.pop(trial.number, [])
        if not jobs:  # it ended when another command finished the runs that ours waited for
            return
        for job in jobs:
            self.execution.count(job, self.labels[job.id])
        runs = [job.id for job in jobs]
        failed = self.execution.failed
        errors = [failed[run] for run in runs if run in failed]
        results = [] if errors else [read_record(self.store.run(run).folder).result["val"] for run in runs]
        self.search.end(trial, results, *errors[:1])
        frozen = self.search.trials()[trial.number]
        if not self.record.add(frozen, runs):  # added by an earlier command, or by another that is running
            return
        if frozen.state == TrialState.COMPLETE:
            self.execution.meter.say(f"{self._label(trial)}: validation {OBJECTIVE} {frozen.value:.4f}")

    def _label(self, trial: Trial | FrozenTrial) -> str:
        return f"{self.target.label} {format_params(trial.params)}"


def format_params(params: Mapping[str, Any]) -> str:
    """Return hyperparameters as users see them."""
    return ", ".join(f"{name} {value:g}" for name, value in params.items())
