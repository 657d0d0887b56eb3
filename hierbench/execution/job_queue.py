"""The jobs of a plan that wait, in the order in which they can start."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hierbench.execution.run_job import TakenError, execute
from hierbench.execution.train_job import StoppedError
from hierbench.planning.resources import Setting
from hierbench.runs.job import Job
from hierbench.runs.peers import Elsewhere, OnProgress
from hierbench.runs.repair import Note, is_finished
from hierbench.runs.store import Store
from hierbench.utils.console import throttled

OnEnd = Callable[[Job, str], None]  # job, error ("" if it went well)


@dataclass
class Queue:
    """The jobs of a plan that wait, and what becomes of them; for the arguments see `run_plan`."""

    plan: Sequence[Job]
    store: Store
    on_progress: OnProgress
    on_end: OnEnd
    note: Note
    is_over: Callable[[Job], bool]

    def __post_init__(self) -> None:
        self.elsewhere = Elsewhere(self.store)
        self.failed: dict[str, str] = {}
        self.waiting = [job for job in self.plan if not is_finished(job.spec, self.store)]
        self._started = {job.id for job in self.waiting}

    def end(self, job: Job, error: str) -> None:
        """End a job, with "" if it went well.

        Raises:
            UserError: it failed, and the folder of the runs can no longer be written.
        """
        if error:
            self.failed[job.id] = error
            self.store.writable()
        self.on_end(job, error)
        for other in self.plan:  # cached, but of other predictions than those that this job now has
            if other.spec.base == job.id and other.id not in self._started and not is_finished(other.spec, self.store):
                self._started.add(other.id)
                self.waiting.append(other)

    def run(self, job: Job, setting: Setting) -> None:
        """Run one job in this process."""

        def report(done: float, total: int) -> None:
            self.on_progress(job, done, total)
            if self.is_over(job):
                raise StoppedError

        try:
            self.end(job, execute(job, setting, throttled(report, 0.2), self.note))
        except TakenError:
            self.waiting.append(job)
        except StoppedError:
            pass

    def take(self, running: set[str]) -> Job | None:
        """Take the first job that can start; one whose base failed, or that another process has finished, ends here."""
        unfinished = running | {job.id for job in self.waiting}
        for job in list(self.waiting):
            if job.spec.base in self.failed:
                self.waiting.remove(job)
                self.end(job, f"its base failed: {self.failed[job.spec.base]}")
            elif self.is_over(job):
                self.waiting.remove(job)
            elif job.spec.base in unfinished or self.elsewhere.has(job):
                continue
            elif is_finished(job.spec, self.store):
                self.waiting.remove(job)
                self.end(job, "")
            else:
                self.waiting.remove(job)
                return job
        return None

    def follow(self) -> None:
        """Show what others do."""
        self.elsewhere.follow(self.waiting, self.on_progress, self.note)
