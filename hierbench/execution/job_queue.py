"""The jobs of a plan that wait, in the order in which they can start."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hierbench.execution.train_job import Report, StoppedError
from hierbench.runs.job import Job
from hierbench.runs.peers import Elsewhere, OnProgress
from hierbench.runs.repair import Note, is_finished
from hierbench.runs.store import Store
from hierbench.utils.console import throttled

OnEnd = Callable[[Job, str], None]  # job, error ("" if it went well)


@dataclass
class Queue:
    """The jobs of a plan that wait, and what becomes of them."""

    waiting: list[Job]
    failed: dict[str, str]
    store: Store
    end: Callable[[Job, str | None], None]
    on_progress: OnProgress
    note: Note
    is_over: Callable[[Job], bool]

    def __post_init__(self) -> None:
        self.elsewhere = Elsewhere(self.store)

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

    def reporter(self, job: Job) -> Report:
        """Return what a job that runs in this process reports to; it stops the job when that is over."""

        def report(done: float, total: int) -> None:
            self.on_progress(job, done, total)
            if self.is_over(job):
                raise StoppedError

        return throttled(report, 0.2)

    def follow(self) -> None:
        """Show what others do."""
        self.elsewhere.follow(self.waiting, self.on_progress, self.note)
