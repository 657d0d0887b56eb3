"""Jobs of a plan that other processes are running: which jobs, by which process, and their progress."""

from collections.abc import Callable, Iterable

from hierbench.runs.job import Job
from hierbench.runs.record_reader import read_record
from hierbench.runs.repair import Note
from hierbench.runs.store import Store
from hierbench.utils.lock import Lock

POLL = 0.5  # seconds between two polls
OnProgress = Callable[[Job, float, int], None]  # job, epochs done, epochs in all


class Peers:
    """Watches the locks of jobs that wait here."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._locks: dict[str, Lock] = {}
        self._said: set[str] = set()

    def has(self, job: Job) -> str | None:
        """Return the living process that has a job, None where it can be taken."""
        return self._locks.setdefault(job.id, Lock(self.store.run(job.id).folder)).holder()

    def follow(self, jobs: Iterable[Job], on_progress: OnProgress, note: Note) -> None:
        """Show the progress of the jobs that other processes run, and once who runs them."""
        for job in jobs:
            holder = self.has(job)
            if holder is None:
                continue
            if job.id not in self._said:
                self._said.add(job.id)
                note(f"note: {job.spec.label} is with {holder}; waiting for it")
            if job.trains:
                on_progress(job, read_record(self.store.run(job.id).folder).epochs_done, job.spec.train.rounds)
