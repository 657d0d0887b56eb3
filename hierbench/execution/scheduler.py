"""Running a plan: what is cached is skipped, the rest goes to worker processes, one failure stops nothing else.

Several processes may run plans on one folder: a job is run by who has its lock, the others wait for it at the end.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from multiprocessing.connection import wait

import torch

from hierbench.execution.job_queue import OnEnd, Queue
from hierbench.execution.workers import Worker
from hierbench.planning.resources import Setting
from hierbench.runs.job import Job, State
from hierbench.runs.peers import POLL, OnProgress
from hierbench.runs.repair import Note, is_finished, mend, needs_mending
from hierbench.runs.store import Store
from hierbench.utils.console import say
from hierbench.utils.lock import Lock, LostError


def states(plan: list[Job], store: Store) -> dict[str, State]:
    """Return what will happen to each job."""
    return {job.id: "cached" if is_finished(job.spec, store) else "train" if job.trains else "rescore" for job in plan}


def planned(plan: Sequence[Job], store: Store, note: Note) -> None:
    """Create the jobs' folders, so that they count even if they never run, and set aside what is damaged in them."""
    re_ranked = {job.spec.base for job in plan if job.spec.base and not is_finished(job.spec, store)}
    for job in plan:
        run, read = store.run(job.id), job.id in re_ranked
        if needs_mending(job.spec, run, read=read):
            run.folder.mkdir(parents=True, exist_ok=True)
            lock = Lock(run.folder)
            try:
                if lock.acquire():  # else another process is at work there, and sees to it
                    mend(job.spec, replace(run, guard=lock.check), note, read=read)
            except LostError:
                pass
            finally:
                lock.release()
    store.ask_for([job.id for job in plan])


def run_plan(
    plan: list[Job],
    setting: Setting,
    on_progress: OnProgress,
    on_end: OnEnd,
    note: Note = say,
    is_over: Callable[[Job], bool] = lambda job: False,
) -> dict[str, str]:
    """Run every job that is not done; return {id: error} of those that failed or could not start.

    Args:
        plan: the jobs.
        setting: where and on what they run.
        on_progress: called with the progress of jobs.
        on_end: called when a job has ended, well or not.
        note: called with what users should know, a line each.
        is_over: asked about jobs that wait or run on this machine; one that is over is stopped or not started, without
            a call of `on_end`, and can be resumed.

    Raises:
        KeyboardInterrupt: passed on after the workers are stopped; what is finished is kept.
        UserError: the folder of the runs can no longer be written.
    """
    planned(plan, setting.store, note)
    queue = Queue(plan, setting.store, on_progress, on_end, note, is_over)
    if setting.executor == "ray":
        from hierbench.execution.ray_cluster import train_on_ray  # an extra

        train_on_ray(queue, setting)
    if setting.workers == 1 or setting.executor == "ray":
        _run_here(queue, setting)
    else:
        _run_in_workers(queue, setting)
    return queue.failed


def _run_here(queue: Queue, setting: Setting) -> None:
    setting = setting.of_worker(0)
    if setting.threads:
        torch.set_num_threads(setting.threads)
    while queue.waiting:
        if (job := queue.take(set())) is not None:
            queue.run(job, setting)
        elif queue.waiting:
            queue.follow()
            time.sleep(POLL)


def _run_in_workers(queue: Queue, setting: Setting) -> None:
    workers: list[Worker] = []
    try:
        while queue.waiting or any(worker.job for worker in workers):
            idle = [worker for worker in workers if worker.job is None]
            while queue.waiting and (idle or len(workers) < setting.workers):
                job = queue.take({worker.job.id for worker in workers if worker.job})
                if job is None:
                    break
                if not idle:
                    taken = {worker.slot for worker in workers}
                    slot = next(slot for slot in range(setting.workers) if slot not in taken)
                    workers.append(Worker(setting, slot))
                    idle.append(workers[-1])
                idle.pop(0).start(job)
                queue.on_progress(job, 0.0, job.spec.train.epochs)  # it shows while the worker starts up
            for gone in [worker for worker in workers if worker.job and not worker.poll(queue)]:
                workers.remove(gone)
            busy = [worker for worker in workers if worker.job]
            if queue.waiting and not busy:
                queue.follow()
            wait([worker.connection for worker in busy], timeout=POLL)
    finally:
        for worker in workers:
            worker.stop()
