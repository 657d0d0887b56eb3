"""Jobs of a plan that other processes are running: which, by whom, and how far they are."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from hierbench.runs.job import Job
from hierbench.runs.repair import Note
from hierbench.runs.store import Store
from hierbench.utils.errors import UserError
from hierbench.utils.lock import Holder, Watch

POLL = 0.5  # seconds between two looks
OnProgress = Callable[[Job, float, int], None]  # job, epochs done, epochs in all


class Elsewhere:
    """Watches the locks of jobs that wait here."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._watches: dict[str, Watch] = {}
        self._said: set[str] = set()

    def has(self, job: Job) -> Holder | None:
        """Return the living process that has a job, None where it can be taken."""
        return self._watch(job).busy()

    def dead(self, job: Job) -> tuple[Holder, ...]:
        """Return who has a job's lock and gives no sign of life any more; for `Lock.acquire`."""
        return self._watch(job).dead

    def follow(self, jobs: Iterable[Job], on_progress: OnProgress, note: Note) -> None:
        """Show how far others are with jobs that nothing is left to do but wait for, and once who has them."""
        for job in jobs:
            holder = self.has(job)
            if holder is None:
                continue
            if job.id not in self._said:
                self._said.add(job.id)
                note(f"note: {job.spec.label} is with {holder}; waiting for it")
            if job.trains:
                on_progress(job, self._epochs_done(job), job.spec.train.epochs)

    def _watch(self, job: Job) -> Watch:
        return self._watches.setdefault(job.id, Watch(self.store.run(job.id).folder))

    def _epochs_done(self, job: Job) -> int:
        try:
            return len(self.store.run(job.id).history())
        except (OSError, UserError):  # its first epoch is not over
            return 0
