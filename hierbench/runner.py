"""Running a plan: what is cached is skipped, the rest goes to worker processes, one failure stops nothing else."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Literal

import torch

from hierbench.data.prepared import Prepared
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
    threads: int | None = None  # of each process that computes
    devices: int = 1  # that share one job
    jobs_per_gpu: int = 1  # that share one CUDA device
    gpus: tuple[int, ...] = ()  # indices of the CUDA devices that may be used, () for all
    weights: Path | None = None  # the file that backbones start from
    snapshots: int = 0  # keep the model after every so many epochs and the last; 0 for never
    apart: frozenset[str] = frozenset()  # see `Store`
    executor: Literal["local", "ray"] = "local"  # what trains; "ray" after `hierbench.on_ray.connect`

    @property
    def store(self) -> Store:
        """The runs."""
        return Store(self.runs, self.apart)

    def of_worker(self, slot: int) -> Setting:
        """Return the setting of one of the workers: their jobs spread over the CUDA devices, in groups of `devices`."""
        if self.device != "cuda":
            return self
        gpus = self.gpus or tuple(range(torch.cuda.device_count()))
        group = slot % max(1, len(gpus) // self.devices)
        return replace(self, gpus=gpus[group * self.devices : (group + 1) * self.devices])


def states(plan: list[Job], store: Store) -> dict[str, State]:
    """Return what will happen to each job."""
    return {job.id: "cached" if store.run(job.id).done else "train" if job.trains else "rescore" for job in plan}


def num_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def side_by_side(num_training: int, device: str, devices: int = 1, jobs_per_gpu: int = 1) -> tuple[int, int | None]:
    """Return worker processes, and threads of each process that computes, for "--jobs auto".

    On a CPU that is one single-threaded process per core, because small models gain more from a second process than
    from a second thread; on GPUs `jobs_per_gpu` jobs for each group of `devices`. The numbers follow from the jobs of
    the whole plan that train, not from what is left of it, so that all its jobs have the same number of threads.

    Args:
        num_training: jobs that train.
        device: "cpu", "cuda" or "mps".
        devices: that share one job; on a CPU they are processes.
        jobs_per_gpu: jobs that share one device.

    Raises:
        UserError: there are not so many devices.
    """
    if device == "cpu":
        cores = num_cores()
        if devices > cores:
            raise UserError(f"--devices {devices}: this machine has {cores} cores")
        workers = max(1, min(cores // devices, num_training))
        return workers, max(1, cores // (workers * devices))
    there = torch.cuda.device_count() if device == "cuda" else 1
    if devices > there:
        raise UserError(f"--devices {devices}: this machine has {there} of {device}")
    return max(1, min(there // devices * jobs_per_gpu, num_training)), None


def execute(job: Job, setting: Setting, report: Callable[[float, int], None]) -> str:
    """Run one job to its end and return its error, "" if it went well. Idempotent: a finished job returns at once."""
    from hierbench.data import prepared as data
    from hierbench.memory import OutOfMemoryError
    from hierbench.posthoc import rescore
    from hierbench.train import NonFiniteLossError

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
            _train(job, setting, dataset, report)
        else:
            assert job.spec.base is not None
            base = store.run(job.spec.base)
            rescore(job.spec, job.found.cls, dataset, base, run, setting.device)  # type: ignore[arg-type]
        run.set_status("done", started=started, seconds=time.time() - started)
    except (Exception, SystemExit, GeneratorExit) as error:  # somebody's method may do anything
        expected = isinstance(error, UserError | NonFiniteLossError | OutOfMemoryError | OSError)
        reason = " ".join((str(error) if expected else f"{type(error).__name__}: {error}").split())
        if isinstance(error, OSError) and error.filename is None:
            reason += f" (in {run.folder})"
        try:
            run.set_status("failed", error=reason, traceback=traceback.format_exc())
        except OSError:
            pass  # a full disk: the reason still reaches the caller
        return reason
    return ""


def _train(job: Job, setting: Setting, dataset: Prepared, report: Callable[[float, int], None]) -> None:
    """Train a job on its device or devices; one that has too little memory says how much would fit."""
    from hierbench.memory import OutOfMemoryError, is_out_of_memory, what_would_fit
    from hierbench.ranks import train_on_ranks

    try:
        return train_on_ranks(job, setting, report) if setting.devices > 1 else train_here(job, setting, report)
    except Exception as error:
        if not is_out_of_memory(error):
            raise
    # Outside of the handler, which holds on to what was in memory.
    where = (setting.device, setting.gpus, setting.devices)
    raise OutOfMemoryError(what_would_fit(job.spec, job.found.cls, dataset, *where))  # type: ignore[arg-type]


def train_here(job: Job, setting: Setting, report: Callable[[float, int], None]) -> None:
    """Train a job in this process, alone or as one of several."""
    from hierbench.data import prepared as data
    from hierbench.snapshots import keeper
    from hierbench.train import train

    dataset = data.find(data.variant_name(job.spec.dataset.name, job.spec.dataset.jpeg_quality), setting.data_dir)
    assert dataset is not None, "looked at before the start"
    run = setting.store.run(job.id)
    keep = keeper(run, setting.snapshots, job.spec.train.epochs)
    where = (setting.device, report, _weights(job, setting), keep, setting.gpus, setting.devices)
    train(job.spec, job.found.cls, dataset, run, *where)  # type: ignore[arg-type]


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

    if setting.executor == "ray":
        from hierbench.on_ray import train_on_ray  # an extra

        train_on_ray([job for job in waiting if job.trains], setting, on_progress, end)
        waiting = [job for job in waiting if not job.trains]
    if setting.workers == 1 or setting.executor == "ray":
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
    setting = setting.of_worker(0)
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
                    taken = {worker.slot for worker in workers}
                    slot = next(slot for slot in range(setting.workers) if slot not in taken)
                    workers.append(Worker(setting, slot))
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
