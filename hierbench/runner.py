"""Running a plan: what is cached is skipped, the rest goes to worker processes, one failure stops nothing else."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Literal

import torch

from hierbench.discovery import find_method
from hierbench.errors import UserError
from hierbench.files import remove_abandoned
from hierbench.job import Spec
from hierbench.models.weights import weights_digest
from hierbench.plan import Job
from hierbench.store import Store

State = Literal["train", "rescore", "cached", "blocked"]
OnProgress = Callable[[Job, float, int], None]  # job, epochs done, epochs in all
OnEnd = Callable[[Job, str], None]  # job, error ("" if it went well)


@dataclass(frozen=True)
class Setting:
    """Where and on what jobs run; none of it changes a result's id."""

    runs: Path
    data_dir: Path
    device: str = "cpu"
    workers: int = 1
    threads: int | None = None
    weights: Path | None = None  # the file that backbones start from
    snapshots: int = 0  # keep the model after every so many epochs and the last; 0 for never
    apart: frozenset[str] = frozenset()  # see `Store`

    @property
    def store(self) -> Store:
        """The runs."""
        return Store(self.runs, self.apart)


def states(plan: list[Job], store: Store) -> dict[str, State]:
    """Return what will happen to each job."""
    return {job.id: "cached" if store.run(job.id).done else "train" if job.trains else "rescore" for job in plan}


def default_workers(num_training: int, device: str) -> tuple[int, int | None]:
    """Return worker processes and threads per worker: on a CPU one single-threaded worker per core.

    Small models gain more from a second process than from a second thread. The numbers follow from the jobs of the
    whole plan that train, not from what is left of it, so that all its jobs have the same number of threads.
    """
    if device != "cpu":
        return 1, None
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    workers = max(1, min(cores, num_training))
    return workers, max(1, cores // workers)


def execute(job: Job, setting: Setting, report: Callable[[float, int], None]) -> str:
    """Run one job to its end and return its error, "" if it went well. Idempotent: a finished job returns at once."""
    from hierbench.data import prepared as data
    from hierbench.posthoc import rescore
    from hierbench.snapshots import keeper
    from hierbench.train import NonFiniteLossError, train

    store = setting.store
    run = store.run(job.id)
    try:
        if run.done:
            return ""
        run.plan(job.spec.content())
        remove_abandoned(run.folder)
        if job.found.code != job.spec.method.code:
            raise UserError(f"the file of {job.found.name} has changed since the plan; run the command again")
        started = time.time()
        run.set_status("running", started=started, pid=os.getpid())
        variant = data.variant_name(job.spec.dataset.name, job.spec.dataset.jpeg_quality)
        dataset = data.find(variant, setting.data_dir)
        if dataset is None or dataset.digest != job.spec.dataset.digest:
            raise UserError(f"{job.spec.dataset.name} in {setting.data_dir} is not the data this job was planned for")
        if job.trains:
            weights = _weights(job, setting)
            keep = keeper(run, setting.snapshots, job.spec.train.epochs)
            train(job.spec, job.found.cls, dataset, run, setting.device, report, weights, keep)  # type: ignore[arg-type]
        else:
            assert job.spec.base is not None
            base = store.run(job.spec.base)
            rescore(job.spec, job.found.cls, dataset, base, run, setting.device)  # type: ignore[arg-type]
        run.set_status("done", started=started, seconds=time.time() - started)
    except (Exception, SystemExit, GeneratorExit) as error:  # somebody's method may do anything
        expected = isinstance(error, UserError | NonFiniteLossError | OSError)
        reason = " ".join((str(error) if expected else f"{type(error).__name__}: {error}").split())
        if isinstance(error, OSError) and error.filename is None:
            reason += f" (in {run.folder})"
        try:
            run.set_status("failed", error=reason, traceback=traceback.format_exc())
        except OSError:
            pass  # a full disk: the reason still reaches the caller
        return reason
    return ""


def _weights(job: Job, setting: Setting) -> Path | None:
    """Return the file of the backbone's weights, after comparing it with the plan's."""
    if job.spec.weights is None:
        return None
    if setting.weights is None or weights_digest(setting.weights) != job.spec.weights:
        raise UserError(f"{setting.weights} is not the file of weights that this job was planned for")
    return setting.weights


def planned(plan: Sequence[Job], store: Store) -> None:
    """Create the jobs' folders, so that they count even if they never run."""
    for job in plan:
        run = store.run(job.id)
        run.plan(job.spec.content())
        os.utime(run.folder / "spec.json")  # `hierbench leaderboard` shows what was asked for last


def run_plan(plan: list[Job], setting: Setting, on_progress: OnProgress, on_end: OnEnd) -> dict[str, str]:
    """Run every job that is not done; return {id: error} of those that failed or could not start.

    Raises:
        KeyboardInterrupt: passed on after the workers are stopped; what is finished is kept.
    """
    store = setting.store
    planned(plan, store)
    waiting = [job for job in plan if not store.run(job.id).done]
    failed: dict[str, str] = {}

    def end(job: Job, error: str) -> None:
        if error:
            failed[job.id] = error
        on_end(job, error)

    if setting.workers == 1:
        _run_here(waiting, failed, setting, on_progress, end)
    else:
        _run_in_workers(waiting, failed, setting, on_progress, end)
    return failed


def _take(waiting: list[Job], failed: dict[str, str], unfinished: set[str], end: OnEnd) -> Job | None:
    """Take the first job that can start; one whose base failed ends here."""
    for job in list(waiting):
        if job.spec.base in failed:
            waiting.remove(job)
            end(job, f"its base failed: {failed[job.spec.base]}")
        elif job.spec.base not in unfinished:
            waiting.remove(job)
            return job
    return None


def _run_here(
    waiting: list[Job], failed: dict[str, str], setting: Setting, on_progress: OnProgress, end: OnEnd
) -> None:
    if setting.threads:
        torch.set_num_threads(setting.threads)
    while waiting:
        unfinished = {job.id for job in waiting}
        if (job := _take(waiting, failed, unfinished, end)) is not None:
            end(job, execute(job, setting, partial(on_progress, job)))


def _run_in_workers(
    waiting: list[Job], failed: dict[str, str], setting: Setting, on_progress: OnProgress, end: OnEnd
) -> None:
    workers: list[Worker] = []
    try:
        while waiting or any(worker.job for worker in workers):
            unfinished = {job.id for job in waiting} | {worker.job.id for worker in workers if worker.job}
            idle = [worker for worker in workers if worker.job is None]
            while waiting and (idle or len(workers) < setting.workers):
                job = _take(waiting, failed, unfinished, end)
                if job is None:
                    break
                if not idle:
                    workers.append(Worker(setting))
                    idle.append(workers[-1])
                idle.pop(0).start(job)
                on_progress(job, 0.0, job.spec.train.epochs)  # it shows while the worker starts up
            for worker in [worker for worker in workers if worker.job]:
                if not worker.poll(on_progress, end):
                    workers.remove(worker)
            busy = [worker for worker in workers if worker.job]
            wait([worker.connection for worker in busy], timeout=0.5)
    finally:
        for worker in workers:
            worker.stop()


class Worker:
    """A process that runs one job after another and talks through a pipe."""

    def __init__(self, setting: Setting) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process: BaseProcess = context.Process(target=_work, args=(theirs, setting), daemon=True)
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # inherited: Ctrl-C is the parent's to handle
        self.process.start()
        signal.signal(signal.SIGINT, before)
        theirs.close()
        self.job: Job | None = None

    def start(self, job: Job) -> None:
        """Send it a job."""
        self.job = job
        reference = job.found.reference
        try:
            self.connection.send((job.spec.content(), reference))
        except OSError:
            pass  # it died while idle: `poll` finds out

    def poll(self, on_progress: OnProgress, end: OnEnd) -> bool:
        """Read what it said; return False if it is dead."""
        assert self.job is not None
        try:
            while self.connection.poll():
                message = self.connection.recv()
                if isinstance(message, str):
                    self._end(message, end)
                    return True
                on_progress(self.job, *message)
        except (EOFError, OSError):
            self.process.join(5)
            code = self.process.exitcode or 0
            how = f"killed by signal {-code} ({signal.Signals(-code).name})" if code < 0 else f"exit code {code}"
            self._end(f"the worker process ended ({how}); run the same command to go on from its last epoch", end)
            return False
        return True

    def _end(self, error: str, end: OnEnd) -> None:
        job, self.job = self.job, None
        assert job is not None
        end(job, error)

    def stop(self) -> None:
        """End the process at once."""
        self.process.terminate()
        self.process.join(5)
        self.connection.close()


def _work(connection: Connection[Any, Any], setting: Setting) -> None:
    """Run jobs until the parent closes the pipe or dies."""
    sys.stdout = sys.stderr  # a method may print; results alone go to standard output
    if setting.threads:
        torch.set_num_threads(setting.threads)
    try:
        while True:
            content, reference = connection.recv()
            try:
                job = Job(Spec.model_validate(content), find_method(reference))
            except UserError as error:  # the method's file has gone or broken since the plan
                connection.send(str(error))
                continue
            connection.send(execute(job, setting, _reporter(connection)))
    except (EOFError, OSError):
        os._exit(1)  # the parent is gone


def _reporter(connection: Connection[Any, Any]) -> Callable[[float, int], None]:
    """Return a function that passes progress on, a few times a second."""
    last = 0.0

    def report(done: float, total: int) -> None:
        nonlocal last
        if time.monotonic() - last > 0.2:
            last = time.monotonic()
            try:
                connection.send((done, total))
            except OSError:
                os._exit(1)  # the parent is gone; the job itself has not failed and goes on another time

    return report
