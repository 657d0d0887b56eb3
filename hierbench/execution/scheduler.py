"""Running jobs: finished ones are skipped, others go to worker processes, and one failure does not stop the rest.

Several commands may share a runs folder: whichever has a job's lock runs it, the others wait for it at the end.
"""

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from hierbench.execution.job_queue import OnEnd, Queue
from hierbench.execution.resources import Setting
from hierbench.execution.run_job import can_compute, execute
from hierbench.execution.workers import run_in_workers
from hierbench.runs.job import Job, JobState
from hierbench.runs.peers import POLL, OnProgress
from hierbench.runs.repair import Note, is_finished, needs_repair, repair
from hierbench.runs.store import Store
from hierbench.utils.console import say, throttled
from hierbench.utils.errors import UserError
from hierbench.utils.lock import Lock, LostError


def states(jobs: Sequence[Job], store: Store) -> dict[str, JobState]:
    """Return the state of each job before it runs."""
    return {job.id: "cached" if is_finished(job.spec, store) else "train" if job.trains else "rescore" for job in jobs}


def create_runs(jobs: Sequence[Job], store: Store, note: Note) -> None:
    """Create the jobs' folders, so that they count even if they never run, and quarantine damaged files in them."""
    re_ranked = {base for job in jobs if job.spec.bases and not is_finished(job.spec, store) for base in job.spec.bases}
    for job in jobs:
        run = store.run(job.id)
        read = job.id in re_ranked
        if not needs_repair(job.spec, run, read=read):
            continue
        run.folder.mkdir(parents=True, exist_ok=True)
        lock = Lock(run.folder)
        try:
            if lock.acquire():  # else another process runs the job, and repairs its folder
                repair(job.spec, replace(run, guard=lock.check), note, read=read)
        except LostError:
            pass
        finally:
            lock.release()
    store.tidy([job.id for job in jobs])


def run_jobs(
    jobs: Sequence[Job],
    setting: Setting,
    on_progress: OnProgress,
    on_end: OnEnd,
    note: Note = say,
) -> dict[str, str]:
    """Run every job that is not done; return {id: error} of those that failed or could not start.

    Raises:
        KeyboardInterrupt: passed on after the workers are stopped; finished jobs are kept.
        UserError: the runs folder can no longer be written.
    """
    create_runs(jobs, setting.store, note)
    queue = Queue(jobs, setting.store, on_progress, on_end, note)
    if not setting.in_process:
        run_in_workers(queue, setting)
        return queue.failed
    local_setting = setting.of_worker(0)  # in this process, one after another
    while queue.waiting:
        job = queue.take(set())
        if job:
            outcome = execute(job, local_setting, throttled(partial(on_progress, job), 0.2), queue.note)
            queue.end(job, outcome)
            if outcome.state == "failed" and not can_compute(local_setting.device):
                raise UserError(f"this process can no longer use the GPU ({outcome.error}); run the same command again")
        elif queue.waiting:
            queue.follow()
            time.sleep(POLL)
    return queue.failed
