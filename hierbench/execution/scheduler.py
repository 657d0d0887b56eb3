"""Running a plan: what is cached is skipped, the rest goes to worker processes, one failure stops nothing else.

Several processes may run plans on one folder: a job is run by who has its lock, the others wait for it at the end.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Literal

import torch

from hierbench.api.isolation import ending
from hierbench.api.registry import find_method
from hierbench.config.spec import Spec
from hierbench.execution.run_job import Report, execute
from hierbench.planning.dry_run import say
from hierbench.planning.plan import Job
from hierbench.planning.resources import Setting
from hierbench.runs.peers import POLL, Elsewhere, OnProgress
from hierbench.runs.repair import Note, is_finished, mend, needs_mending
from hierbench.runs.store import Store
from hierbench.utils.errors import UserError, one_line_of
from hierbench.utils.lock import Holder, Lock, LostError

State = Literal["train", "rescore", "cached", "blocked"]
OnEnd = Callable[[Job, str], None]  # job, error ("" if it went well)


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
            lock = Lock.acquire(run.folder)
            if lock is not None:  # else another process is at work there, and sees to it
                try:
                    mend(job.spec, replace(run, guard=lock.check), note, read=read)
                except LostError:
                    pass
                finally:
                    lock.release()
    store.ask_for([job.id for job in plan])


def run_plan(
    plan: list[Job], setting: Setting, on_progress: OnProgress, on_end: OnEnd, note: Note = say
) -> dict[str, str]:
    """Run every job that is not done; return {id: error} of those that failed or could not start.

    Raises:
        KeyboardInterrupt: passed on after the workers are stopped; what is finished is kept.
        UserError: the folder of the runs can no longer be written.
    """
    store = setting.store
    planned(plan, store, note)
    waiting = [job for job in plan if not is_finished(job.spec, store)]
    started = {job.id for job in waiting}
    failed: dict[str, str] = {}

    def end(job: Job, error: str | None) -> None:
        if error is None:  # another process was faster
            waiting.append(job)
            return
        if error:
            failed[job.id] = error
            store.writable()
        on_end(job, error)
        for other in plan:  # cached, but of other predictions than those that this job now has
            if other.spec.base == job.id and other.id not in started and not is_finished(other.spec, store):
                started.add(other.id)
                waiting.append(other)

    queue = Queue(waiting, failed, store, end, on_progress, note)
    if setting.executor == "ray":
        from hierbench.execution.ray_cluster import train_on_ray  # an extra

        train_on_ray(queue, setting)
    if setting.workers == 1 or setting.executor == "ray":
        _run_here(queue, setting)
    else:
        _run_in_workers(queue, setting)
    return failed


@dataclass
class Queue:
    """The jobs of a plan that wait, and what becomes of them."""

    waiting: list[Job]
    failed: dict[str, str]
    store: Store
    end: Callable[[Job, str | None], None]
    on_progress: OnProgress
    note: Note

    def __post_init__(self) -> None:
        self.elsewhere = Elsewhere(self.store)

    def take(self, running: set[str]) -> Job | None:
        """Take the first job that can start; one whose base failed, or that another process has finished, ends here."""
        unfinished = running | {job.id for job in self.waiting}
        for job in list(self.waiting):
            if job.spec.base in self.failed:
                self.waiting.remove(job)
                self.end(job, f"its base failed: {self.failed[job.spec.base]}")
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


def _run_here(queue: Queue, setting: Setting) -> None:
    setting = setting.of_worker(0)
    if setting.threads:
        torch.set_num_threads(setting.threads)
    while queue.waiting:
        if (job := queue.take(set())) is not None:
            report, dead = partial(queue.on_progress, job), queue.elsewhere.dead(job)
            queue.end(job, execute(job, setting, report, queue.note, dead))
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
                    workers.append(Worker(setting, free_slot(setting, workers)))
                    idle.append(workers[-1])
                idle.pop(0).start(job, queue.elsewhere.dead(job))
                queue.on_progress(job, 0.0, job.spec.train.epochs)  # it shows while the worker starts up
            for worker in [worker for worker in workers if worker.job]:
                if not worker.poll(queue.on_progress, queue.end, queue.note):
                    workers.remove(worker)
            busy = [worker for worker in workers if worker.job]
            if queue.waiting and not busy:
                queue.follow()
            wait([worker.connection for worker in busy], timeout=POLL)
    finally:
        for worker in workers:
            worker.stop()


class Worker:
    """A process that runs one job after another and talks through a pipe; `slot` says which devices are its own."""

    def __init__(self, setting: Setting, slot: int = 0) -> None:
        self.slot = slot
        setting = setting.of_worker(slot)
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        # A daemon may have no children of its own, which a job on several devices has; it leaves with the pipe anyway.
        daemon = setting.devices == 1
        self.process: BaseProcess = context.Process(target=_work, args=(theirs, setting), daemon=daemon)
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # inherited: Ctrl-C is the parent's to handle
        try:
            self.process.start()
        finally:
            signal.signal(signal.SIGINT, before)
        theirs.close()
        self.job: Job | None = None

    def start(self, job: Job, dead: Collection[Holder] = ()) -> None:
        """Send it a job; `dead` as for `execute`."""
        self.job = job
        try:
            self.connection.send((job.spec.content(), job.found.reference, dead))
        except OSError:
            pass  # it died while idle: `poll` finds out

    def poll(self, on_progress: OnProgress, end: Callable[[Job, str | None], None], note: Note) -> bool:
        """Read what it said: ("progress", done, total), ("note", line) or ("end", error); return False if it is dead.

        `end` gets what `execute` returns.
        """
        assert self.job is not None
        try:
            while self.connection.poll():
                kind, *content = self.connection.recv()
                if kind == "end":
                    self._end(content[0], end)
                    return True
                if kind == "note":
                    note(content[0])
                else:
                    on_progress(self.job, *content)
        except (EOFError, OSError):
            self.process.join(5)
            how = ending(self.process.exitcode or 0)
            self._end(f"the worker process ended ({how}); run the same command to go on from its last epoch", end)
            return False
        return True

    def _end(self, error: str | None, end: Callable[[Job, str | None], None]) -> None:
        job, self.job = self.job, None
        assert job is not None
        end(job, error)

    def stop(self) -> None:
        """End the process at once."""
        self.process.terminate()
        self.process.join(5)
        self.process.kill()  # a method may have it ignore the first
        self.connection.close()


def free_slot(setting: Setting, workers: Sequence[Worker]) -> int:
    """Return the first slot that none of the workers has."""
    taken = {worker.slot for worker in workers}
    return next(slot for slot in range(setting.workers) if slot not in taken)


def _work(connection: Connection[Any, Any], setting: Setting) -> None:
    """Run jobs until the parent closes the pipe or dies."""
    sys.stdout = sys.stderr  # a method may print; results alone go to standard output
    if setting.threads:
        torch.set_num_threads(setting.threads)
    try:
        while True:
            content, reference, dead = connection.recv()
            try:
                job = Job(Spec.model_validate(content), find_method(reference))
            except (UserError, MemoryError) as error:  # the method's file has gone or broken since the plan
                connection.send(("end", str(error) if isinstance(error, UserError) else one_line_of(error)))
                continue
            note = partial(_send, connection, "note")
            connection.send(("end", execute(job, setting, _reporter(connection), note, dead)))
    except (EOFError, OSError):
        os._exit(1)  # the parent is gone


def _send(connection: Connection[Any, Any], *message: Any) -> None:
    try:
        connection.send(message)
    except OSError:
        os._exit(1)  # the parent is gone; the job itself has not failed and goes on another time


def _reporter(connection: Connection[Any, Any]) -> Report:
    """Return a function that passes progress on, a few times a second."""
    last = 0.0

    def report(done: float, total: int) -> None:
        nonlocal last
        if time.monotonic() - last > 0.2:
            last = time.monotonic()
            _send(connection, "progress", done, total)

    return report
