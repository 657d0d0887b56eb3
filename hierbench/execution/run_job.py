"""Running one job under its lock: quarantine damaged files, then train or re-rank, then record how it ended."""

import os
import re
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch

from hierbench.api.method import PostHoc
from hierbench.api.registry import digest_of_code
from hierbench.config.spec import Spec
from hierbench.execution.job_inputs import cached_features, open_data, open_weights
from hierbench.execution.ranks import Report, train_on_ranks
from hierbench.execution.resources import Setting
from hierbench.runs.integrity import fingerprints
from hierbench.runs.job import Job
from hierbench.runs.peers import POLL, Peers
from hierbench.runs.record_reader import read_record
from hierbench.runs.repair import Note, is_finished, predictions_of_bases, quarantine, repair
from hierbench.runs.store import Run
from hierbench.training import trainer
from hierbench.training.checkpoint import load_checkpoint
from hierbench.training.memory import OutOfMemoryError, is_out_of_memory, what_would_fit
from hierbench.training.posthoc import rescore
from hierbench.training.trainer import NonFiniteLossError
from hierbench.utils.console import say
from hierbench.utils.errors import MAX_ERROR, UserError, error_line, is_interrupt
from hierbench.utils.files import read_bytes, remove_abandoned, write_bytes
from hierbench.utils.lock import Lock, LostError
from hierbench.utils.processes import limited_memory
from hierbench.utils.text import one_line

ALLOCATED_BYTES = re.compile(r"allocate (\d+) bytes")  # in the message of PyTorch's allocator on a CPU


class Outcome(NamedTuple):
    """How an attempt at a job ended: "taken" by another process, or otherwise."""

    state: Literal["done", "failed", "taken"]
    error: str = ""


def execute(job: Job, setting: Setting, report: Report, note: Note = say) -> Outcome:
    """Run one job to its end. Idempotent: a finished job returns at once.

    Args:
        job: to run.
        setting: the folders and the device.
        report: called with its progress.
        note: called with notes for users, a line each.
    """
    folder = setting.store.run(job.id).folder
    lock = Lock(folder)
    try:
        if is_finished(job.spec, setting.store):
            return Outcome("done")
        folder.mkdir(parents=True, exist_ok=True)
        if not lock.acquire():
            return Outcome("taken")
    except OSError as error:
        return Outcome("failed", describe_error(error, folder))
    try:
        # Checked again: the previous holder of the lock may have finished the job.
        return Outcome("done") if is_finished(job.spec, setting.store) else _run(job, setting, lock, report, note)
    except LostError as error:
        note(f"note: {job.spec.label}: {error}")
        return Outcome("taken")
    finally:
        lock.release()


def can_compute(device: str) -> bool:
    """Whether this process can still use a device: after some errors, as of an illegal address, CUDA has no other."""
    try:
        if device == "cuda":
            torch.cuda.synchronize()
    except Exception:  # its type differs between versions
        return False
    return True


def record_death(run: Run, error: str) -> Outcome:
    """Record that the process with a job died, and remove its lock; not where another process has taken the job."""
    lock = Lock(run.folder)
    with suppress(OSError, LostError):  # a full disk: the error still reaches the caller
        if lock.acquire() and (status := run.status).get("state") != "done":
            kept = {key: status[key] for key in ("started", "seconds") if key in status}
            replace(run, guard=lock.check).set_status("failed", **kept, error=error)
    lock.release()
    return Outcome("failed", error)


def execute_when_free(job: Job, setting: Setting, report: Report, note: Note = say) -> Outcome:
    """Run one job as `execute` does, after waiting for any other process that has it."""
    peers = Peers(setting.store)
    while True:
        if peers.has(job) is None:
            outcome = execute(job, setting, report, note)
            if outcome.state != "taken":
                return outcome
        peers.follow([job], lambda job, done, total: report(done, total), note)
        time.sleep(POLL)


def _run(job: Job, setting: Setting, lock: Lock, report: Report, note: Note) -> Outcome:
    """Run a job; this process holds its lock."""
    run = replace(setting.store.run(job.id), guard=lock.check)
    checkpoint = run.folder / "checkpoint.pt"
    since = time.monotonic()  # the wall clock may be adjusted
    details: dict[str, Any] = {"started": time.time(), "seconds": 0.0}

    def set_status(state: str, **more: Any) -> None:
        nonlocal since
        now = time.monotonic()
        details["seconds"] += now - since
        since = now
        run.set_status(state, **details, **more)

    report_running = partial(set_status, "running", pid=os.getpid())
    if setting.threads:
        torch.set_num_threads(setting.threads)
    try:
        repair(job.spec, run, note)
        remove_abandoned(run.folder)
        if checkpoint.exists() and load_checkpoint(checkpoint) is None:
            place = quarantine(run, [checkpoint.name])
            note(f"note: {checkpoint.name} of {job.spec.label}: damaged; quarantined in {place}; starting over")
        if checkpoint.exists():  # the job resumes: its time is that of all its sessions
            details |= {key: value for key, value in run.status.items() if key in details}
        _keep_source(job, run)
        report_running()
        if job.trains:
            if job.spec.model.frozen:
                cached_features(job, open_data(job, setting), setting, note)
            train = train_here if setting.devices == 1 else partial(train_on_ranks, train_here)
            with _explained_memory(job, setting):
                train(job, setting, run, report, report_running)
            open_data(job, setting)  # unchanged since the start: the arrays are mapped, not copied
        else:
            details["base_predictions"] = _rescore(job, setting, run, note)
        set_status("done", files=fingerprints(run.folder))
    except BaseException as error:  # a method may raise anything
        if is_interrupt(error) or isinstance(error, LostError):
            raise
        expected = isinstance(error, UserError | NonFiniteLossError | OutOfMemoryError | OSError)
        reason = describe_error(error, run.folder) if expected else error_line(error)
        lines = traceback.format_exception(error)
        with suppress(OSError):  # a full disk: the reason still reaches the caller
            set_status("failed", error=reason, traceback="".join(line[:MAX_ERROR] for line in lines))
        return Outcome("failed", reason)
    return Outcome("done")


def describe_error(error: BaseException, folder: Path) -> str:
    """Return an expected error in one line; `folder` stands for the file that an OSError does not name."""
    if isinstance(error, OSError):
        return f"{error.filename or folder}: {error.strerror or error}"
    return one_line(str(error), MAX_ERROR)


def kept_source(run: Run, spec: Spec) -> Path:
    """Return where the file of a user's own method is kept: it can be given as `--methods`."""
    return run.folder / f"{spec.method.name}.py"


def _keep_source(job: Job, run: Run) -> None:
    """Keep the file of a user's own method next to its result; that copy is never run from here."""
    if job.method.source is None:
        return
    content = read_bytes(job.method.source)
    if digest_of_code(content) != job.spec.method.code:
        raise UserError(f"the file of {job.method.name} has changed since the plan; run the command again")
    run.guard()
    write_bytes(kept_source(run, job.spec), content)


@contextmanager
def _explained_memory(job: Job, setting: Setting) -> Iterator[None]:
    """Raise an error for too little memory that says how much would fit, or was asked for."""
    with limited_memory() if setting.device == "cpu" else nullcontext():
        try:
            yield
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            request = ALLOCATED_BYTES.search(str(error))
            traceback.clear_frames(error.__traceback__)  # they keep the tensors alive
            dataset = open_data(job, setting)
            advice = what_would_fit(job, dataset, setting.device, setting.gpus, setting.devices)
            if request and "--set" not in advice:
                advice += f"; one of its tensors takes {int(request[1]) / 1e9:.1f} GB"
            raise OutOfMemoryError(advice) from None


def train_here(job: Job, setting: Setting, run: Run, report: Report, after_epoch: Callable[[], None]) -> None:
    """Train a job in this process, alone or as one of several that share it."""
    prepared = open_data(job, setting)
    weights = None if job.spec.model.frozen else open_weights(job, setting)
    trainer.train(job, prepared, run, setting.device, report, weights, after_epoch, setting.gpus, setting.devices)


def _rescore(job: Job, setting: Setting, run: Run, note: Note) -> str | list[str | None] | None:
    """Re-rank, and return the digest of the base's predictions, or the digests of several bases."""
    used = predictions_of_bases(job.spec, setting.store)
    prepared = open_data(job, setting)
    bases = [read_record(setting.store.run(base).folder) for base in job.spec.bases]
    if job.spec.model.frozen and issubclass(job.method.cls, PostHoc) and job.method.cls.needs_validation:
        cached_features(job, prepared, setting, note)  # the data that its bases were trained on
    device = f"cuda:{setting.gpus[0] if setting.gpus else 0}" if setting.device == "cuda" else "cpu"
    rescore(job, prepared, bases, run, device)
    return used[0] if len(used) == 1 else used
