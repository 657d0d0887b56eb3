"""Jobs that wait, in the order in which they can start."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hierbench.execution.run_job import Outcome
from hierbench.runs.job import Job
from hierbench.runs.peers import OnProgress, Peers
from hierbench.runs.repair import Note, is_finished
from hierbench.runs.store import Store

OnEnd = Callable[[Job, Outcome], None]  # called for jobs that are done or failed


@dataclass
class Queue:
    """Jobs that wait, and {id: error} of those that failed; for the fields see `run_jobs`."""

    jobs: Sequence[Job]
    store: Store
    on_progress: OnProgress
    on_end: OnEnd
    note: Note

    def __post_init__(self) -> None:
        self.peers = Peers(self.store)
        self.failed: dict[str, str] = {}
        self.waiting = [job for job in self.jobs if not is_finished(job.spec, self.store)]
        self._started = {job.id for job in self.waiting}

    def end(self, job: Job, outcome: Outcome) -> None:
        """Record how an attempt at a job ended; a job that another process took waits for that process.

        Raises:
            UserError: it failed, and the runs folder can no longer be written.
        """
        if outcome.state == "taken":
            self.waiting.append(job)
            return
        if outcome.state == "failed":
            self.failed[job.id] = outcome.error
            self.store.check_writable()
        self.on_end(job, outcome)
        for other in self.jobs:  # cached, but computed from other predictions than those now on disk
            if job.id in other.spec.bases and other.id not in self._started and not is_finished(other.spec, self.store):
                self._started.add(other.id)
                self.waiting.append(other)

    def take(self, running: set[str]) -> Job | None:
        """Remove and return the first job that can start.

        A job leaves the queue here if one of its bases failed, or if another process finished it.
        """
        unfinished = running | {job.id for job in self.waiting}
        for job in list(self.waiting):
            failed = [base for base in job.spec.bases if base in self.failed]
            if failed:
                self.waiting.remove(job)
                self.end(job, Outcome("failed", f"its base failed: {self.failed[failed[0]]}"))
            elif not unfinished.isdisjoint(job.spec.bases) or self.peers.has(job):
                continue
            elif is_finished(job.spec, self.store):
                self.waiting.remove(job)
                self.end(job, Outcome("done"))
            else:
                self.waiting.remove(job)
                return job
        return None

    def follow(self) -> None:
        """Show the progress of other processes that have waiting jobs."""
        self.peers.follow(self.waiting, self.on_progress, self.note)
