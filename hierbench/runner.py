"""Running a plan: what is cached is skipped, the rest goes to worker processes, one failure stops nothing else.

Several processes may run plans on one folder: a job is run by who has its lock, the others wait for it at the end.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Literal

import torch

from hierbench.data.prepared import Prepared
from hierbench.discovery import find_method
from hierbench.elsewhere import POLL, Elsewhere, OnProgress
from hierbench.errors import UserError
from hierbench.files import remove_abandoned
from hierbench.integrity import PREDICTIONS, fingerprints
from hierbench.job import Spec
from hierbench.lock import Holder, Lock, LostError
from hierbench.mend import Note, is_finished, mend, needs_mending, set_aside
from hierbench.models import Classifier
from hierbench.models.weights import weights_digest
from hierbench.plan import Job
from hierbench.store import Run, Store

State = Literal["train", "rescore", "cached", "blocked"]
OnEnd = Callable[[Job, str], None]  # job, error ("" if it went well)
Report = Callable[[float, int], None]  # epochs done, epochs in all


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
    return {job.id: "cached" if is_finished(job.spec, store) else "train" if job.trains else "rescore" for job in plan}


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


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def execute(job: Job, setting: Setting, report: Report, note: Note = _say, dead: Holder | None = None) -> str | None:
    """Run one job to its end. Idempotent: a finished job returns at once.

    Args:
        job: to run.
        setting: where and on what.
        report: called with its progress.
        note: called with what the user should know, a line each.
        dead: who has the job's lock and was found dead.

    Returns:
        Its error, "" if it went well, None where another process has the job.
    """
    folder = setting.store.run(job.id).folder
    try:
        if is_finished(job.spec, setting.store):
            return ""
        folder.mkdir(parents=True, exist_ok=True)
        lock = Lock.acquire(folder, dead=dead)
    except OSError as error:
        return _reason(error, folder)
    if lock is None:
        return None
    outcome = None
    try:
        # Looked at again: whoever had the lock before may have finished the job.
        outcome = "" if is_finished(job.spec, setting.store) else _run(job, setting, lock, report, note)
    except LostError as error:
        note(f"note: {job.spec.label}: {error}")
    finally:
        lock.release(remove=outcome == "")
    return outcome


def _run(job: Job, setting: Setting, lock: Lock, report: Report, note: Note) -> str:
    """Run a job that this process has the lock of; return its error, "" if it went well."""
    from hierbench.train import NonFiniteLossError

    run = replace(setting.store.run(job.id), guard=lock.check)
    since = time.monotonic()  # the other clock may be moved
    details: dict[str, Any] = {"started": time.time(), "seconds": 0.0}

    def sign(state: str, **more: Any) -> None:
        nonlocal since
        since, before = time.monotonic(), since
        details["seconds"] += since - before
        run.set_status(state, **details, **more)

    try:
        mend(job.spec, run, note)
        remove_abandoned(run.folder)
        _set_aside_checkpoint(job, run, note)
        if (run.folder / "checkpoint.pt").exists():  # it goes on: its time is that of all its sessions
            details |= {key: value for key, value in run.status.items() if key in details}
        sign("running", pid=os.getpid())
        if job.trains:
            _train(job, setting, run, report, lambda: sign("running", pid=os.getpid()))
        else:
            details["base_predictions"] = _rescore(job, setting, run)
        sign("done", files=fingerprints(run.folder))
    except LostError:
        raise
    except (Exception, SystemExit, GeneratorExit) as error:  # somebody's method may do anything
        expected = isinstance(error, UserError | NonFiniteLossError | OSError)
        reason = _reason(error, run.folder) if expected else " ".join(f"{type(error).__name__}: {error}".split())
        try:
            sign("failed", error=reason, traceback=traceback.format_exc())
        except OSError:
            pass  # a full disk: the reason still reaches the caller
        return reason
    return ""


def _reason(error: BaseException, folder: Path) -> str:
    """Return an expected error in one line."""
    if isinstance(error, OSError):
        return f"{error.filename or folder}: {error.strerror or error}"
    return " ".join(str(error).split())


def _set_aside_checkpoint(job: Job, run: Run, note: Note) -> None:
    """Set a damaged checkpoint aside, so that the job starts anew."""
    from hierbench.checkpoint import is_whole

    path = run.folder / "checkpoint.pt"
    if path.exists() and not is_whole(path):
        place = set_aside(run, [path.name])
        note(f"note: {path.name} of {job.spec.label}: damaged; set aside in {place}, trained from the start")


def _data(job: Job, setting: Setting) -> Prepared:
    """Return the job's dataset, after comparing data and method with the plan's."""
    from hierbench.data import prepared as data

    if job.found.code != job.spec.method.code:
        raise UserError(f"the file of {job.found.name} has changed since the plan; run the command again")
    variant = data.variant_name(job.spec.dataset.name, job.spec.dataset.jpeg_quality)
    dataset = data.find(variant, setting.data_dir)
    if dataset is None or dataset.digest != job.spec.dataset.digest:
        raise UserError(f"{job.spec.dataset.name} in {setting.data_dir} is not the data this job was planned for")
    return dataset


def _train(job: Job, setting: Setting, run: Run, report: Report, after_epoch: Callable[[], None]) -> None:
    from hierbench.snapshots import keeper
    from hierbench.train import train

    keep = keeper(run, setting.snapshots, job.spec.train.epochs)

    def on_epoch(epoch: int, model: Classifier) -> None:
        after_epoch()
        if keep is not None:
            keep(epoch, model)

    method, dataset = job.found.cls, _data(job, setting)
    train(job.spec, method, dataset, run, setting.device, report, _weights(job, setting), on_epoch)  # type: ignore[arg-type]


def _rescore(job: Job, setting: Setting, run: Run) -> str | None:
    """Re-rank, and return the digest of the predictions it was done with."""
    from hierbench.posthoc import rescore

    assert job.spec.base is not None
    base = setting.store.run(job.spec.base)
    used = base.digest_of(PREDICTIONS)
    rescore(job.spec, job.found.cls, _data(job, setting), base, run)  # type: ignore[arg-type]
    return used


def _weights(job: Job, setting: Setting) -> Path | None:
    """Return the file of the backbone's weights, after comparing it with the plan's."""
    if job.spec.weights is None:
        return None
    if setting.weights is None or weights_digest(setting.weights) != job.spec.weights:
        raise UserError(f"{setting.weights} is not the file of weights that this job was planned for")
    return setting.weights


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
        with suppress(FileNotFoundError):
            os.utime(run.folder / "spec.json")  # `hierbench leaderboard` shows what was asked for last


def run_plan(
    plan: list[Job], setting: Setting, on_progress: OnProgress, on_end: OnEnd, note: Note = _say
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
    if setting.workers == 1:
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
                    workers.append(Worker(setting))
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

    def start(self, job: Job, dead: Holder | None = None) -> None:
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
            code = self.process.exitcode or 0
            how = f"killed by signal {-code} ({signal.Signals(-code).name})" if code < 0 else f"exit code {code}"
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
        self.connection.close()


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
            except UserError as error:  # the method's file has gone or broken since the plan
                connection.send(("end", str(error)))
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
