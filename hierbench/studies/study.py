"""A study is a plan, the jobs that its results call for next, and a table; `carry_out` runs one from its options."""

import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from typing import Any

from hierbench.config.options import Options
from hierbench.execution.scheduler import create_runs, states
from hierbench.execution.session import Execution, Session, job_work
from hierbench.leaderboard.table import Shown, Table
from hierbench.runs.job import Job, JobState
from hierbench.runs.mlflow_mirror import Mirror
from hierbench.runs.repair import is_finished
from hierbench.runs.requests import Kind, Request, record_request, request_options
from hierbench.studies.dry_run import commands_table
from hierbench.utils.console import say


class Study(ABC):
    """The jobs of a command, and their table.

    Attributes:
        kind: of the recorded request; None for no request.
        failed: whether it lacks a result, even if all jobs succeeded.
        request: that was recorded.
    """

    kind: Kind | None = None
    failed = False
    request: Request

    @abstractmethod
    def open(self, session: Session) -> None:
        """Find the methods, and open data and weights, which a dry run may lack."""

    @abstractmethod
    def plan(self, session: Session) -> list[Job]:
        """Return the jobs, of which only those are run that are not done."""

    @abstractmethod
    def table(self, session: Session, mirror: Mirror | None) -> Table | None:
        """Return the table of the finished jobs; with a mirror its files are written too, and attached there."""

    @abstractmethod
    def announce(self, session: Session, plan: Sequence[Job], state: dict[str, JobState]) -> Table | None:
        """Set where the plan runs, and say how much it is; return the table of a dry run, which ends here."""

    @abstractmethod
    def title(self, session: Session) -> str:
        """Return the name of the parent run in MLflow, before the time."""

    def label(self, job: Job) -> str:
        """Return the name of a job for users."""
        return job.spec.label

    def states(self, session: Session, plan: Sequence[Job]) -> dict[str, JobState]:
        """Return the state of each job before it runs."""
        return states(list(plan), session.store)

    def request_details(
        self, session: Session, plan: Sequence[Job]
    ) -> tuple[Mapping[str, Any], Sequence[str], Mapping[str, Any]]:
        """Return the details of the recorded request: further options, ids of jobs, and budgets of tuned rows."""
        return {}, [job.id for job in plan], {}

    def steps(self, session: Session, plan: list[Job], execution: Execution) -> Iterator[list[Job]]:
        """Yield jobs to run, one list after another, as the results so far call for them: here the plan alone."""
        execution.meter.expect(sum(job_work(job) for job in plan if not is_finished(job.spec, session.store)))
        yield plan

    def is_over(self, job: Job) -> bool:
        """Whether a job is not started, or stopped where it is."""
        return False

    def on_end(self, job: Job) -> None:
        """Take note of a job that is done or failed."""
        return

    def closing_lines(self, session: Session) -> list[str]:
        """Return lines below the table."""
        return []


def carry_out(study: Study, options: Options) -> Shown:
    """Open, plan, announce, record the request, run, and return the table; the exit code is 1 if a job failed.

    `--dry-run` and `--plan-only` return before anything is run.
    """
    session = Session(options)
    study.open(session)
    inputs = session.inputs
    plan = [] if inputs.prepared is None else study.plan(session)
    state = study.states(session, plan)
    if (dry := study.announce(session, plan, state)) is not None:
        return Shown(dry)
    if inputs.closed:
        say(f"warning: {inputs.closed}; the table is not written there")
        return Shown(study.table(session, None), study.closing_lines(session))
    if study.kind is not None:
        more, ids, budgets = study.request_details(session, plan)
        recorded_options = {**request_options(session.options, session.num_seeds), **more}
        study.request = record_request(
            session.store.root, study.kind, session.recipe.dataset, recorded_options, ids, budgets
        )
    if session.options.plan_only:
        create_runs(plan, session.store, say)
        return Shown(commands_table(plan, state, session.setting))
    labels = dict[str, str]()
    with redirect_stdout(sys.stderr), Execution(session, study.title(session)) as execution:  # a method may print
        for jobs in study.steps(session, plan, execution):
            labels |= {job.id: study.label(job) for job in jobs}
            execution.run(jobs, labels, study.on_end, study.is_over)
        table = study.table(session, execution.mirror)  # after the progress bars, as it may show its own
    failures = [
        f"failed: {labels[job_id]}: {error} ({session.store.run(job_id).folder}/status.json)"
        for job_id, error in execution.failed.items()
    ]
    return Shown(table, [*study.closing_lines(session), *failures], 1 if failures or study.failed else 0)
