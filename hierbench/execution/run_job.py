"""Running one job to its end: under its lock, after mending what is damaged, on one device or several."""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from hierbench.api.method import Method, PostHoc
from hierbench.api.registry import digest_of_code
from hierbench.config.spec import Spec
from hierbench.execution.train_job import Report, StoppedError, data_of, train_here
from hierbench.planning.resources import Setting
from hierbench.runs.integrity import PREDICTIONS, fingerprints
from hierbench.runs.job import Job
from hierbench.runs.peers import POLL, Elsewhere
from hierbench.runs.repair import Note, is_finished, mend, set_aside
from hierbench.runs.store import Run
from hierbench.utils.console import say
from hierbench.utils.errors import UserError, is_interrupt, one_line_of
from hierbench.utils.files import read_bytes, remove_abandoned, write_bytes
from hierbench.utils.lock import Lock, LostError


class TakenError(Exception):
    """Another process has the job."""


def execute(job: Job, setting: Setting, report: Report, note: Note = say) -> str:
    """Run one job to its end; return its error, "" if it went well. Idempotent: a finished job returns at once.

    Args:
        job: to run.
        setting: where and on what.
        report: called with its progress.
        note: called with what users should know, a line each.

    Raises:
        TakenError: another process has the job, or has taken it over.
        StoppedError: passed on from `report`.
    """
    folder = setting.store.run(job.id).folder
    try:
        if is_finished(job.spec, setting.store):
            return ""
        folder.mkdir(parents=True, exist_ok=True)
        lock = Lock(folder)
        if not lock.acquire():
            raise TakenError
    except OSError as error:
        return _reason(error, folder)
    outcome = None
    try:
        # Looked at again: whoever had the lock before may have finished the job.
        outcome = "" if is_finished(job.spec, setting.store) else _run(job, setting, lock, report, note)
    except LostError as error:
        note(f"note: {job.spec.label}: {error}")
        raise TakenError from None
    finally:
        lock.release()
    return outcome


def execute_when_free(job: Job, setting: Setting, report: Report, note: Note = say) -> str:
    """Run one job as `execute` does, after waiting for another process that has it; return its error or ""."""
    elsewhere = Elsewhere(setting.store)
    while True:
        if elsewhere.has(job) is None:
            with suppress(TakenError):
                return execute(job, setting, report, note)
        elsewhere.follow([job], lambda job, done, total: report(done, total), note)
        time.sleep(POLL)


def _run(job: Job, setting: Setting, lock: Lock, report: Report, note: Note) -> str:
    """Run a job that this process has the lock of; return its error, "" if it went well."""
    from hierbench.training.memory import OutOfMemoryError
    from hierbench.training.trainer import NonFiniteLossError

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
        if (run.folder / "checkpoint.pt").exists():  # it resumes: its time is that of all its sessions
            details |= {key: value for key, value in run.status.items() if key in details}
        _keep_source(job, run)
        sign("running", pid=os.getpid())
        if job.trains:
            _train(job, setting, run, report, lambda: sign("running", pid=os.getpid()))
            data_of(job, setting)  # as it was at the start: the arrays are mapped, not copied
        else:
            details["base_predictions"] = _rescore(job, setting, run)
        sign("done", files=fingerprints(run.folder))
    except (LostError, StoppedError):
        raise
    except BaseException as error:  # a method may raise anything
        if is_interrupt(error):
            raise
        expected = isinstance(error, UserError | NonFiniteLossError | OutOfMemoryError | OSError)
        reason = _reason(error, run.folder) if expected else one_line_of(error)
        try:
            sign("failed", error=reason, traceback=traceback.format_exc())
        except OSError:
            pass  # a full disk: the reason still reaches the caller
        return reason
    return ""


def _keep_source(job: Job, run: Run) -> None:
    """Keep the file of a method that is not one of this project beside its result; nothing here ever runs that copy."""
    if job.found.source is None:
        return
    content = read_bytes(job.found.source)
    if digest_of_code(content) != job.spec.method.code:
        raise UserError(f"the file of {job.found.name} has changed since the plan; run the command again")
    run.guard()
    write_bytes(kept_source(run, job.spec), content)


def kept_source(run: Run, spec: Spec) -> Path:
    """Return where the file of a method that is not one of this project is kept: it can be given as `--methods`."""
    return run.folder / f"{spec.method.name}.py"


def _reason(error: BaseException, folder: Path) -> str:
    """Return an expected error in one line."""
    if isinstance(error, OSError):
        return f"{error.filename or folder}: {error.strerror or error}"
    return " ".join(str(error).split())


def _set_aside_checkpoint(job: Job, run: Run, note: Note) -> None:
    """Quarantine a damaged checkpoint, so that the job starts from the beginning."""
    from hierbench.training.checkpoint import load_checkpoint

    path = run.folder / "checkpoint.pt"
    if path.exists() and load_checkpoint(path) is None:
        place = set_aside(run, [path.name])
        note(f"note: {path.name} of {job.spec.label}: damaged; set aside in {place}, trained from the start")


def _train(job: Job, setting: Setting, run: Run, report: Report, after_epoch: Callable[[], None]) -> None:
    """Train a job on its device or devices; one that has too little memory says how much would fit."""
    from hierbench.training.memory import OutOfMemoryError, is_out_of_memory, what_would_fit

    dataset = data_of(job, setting)
    try:
        if setting.devices == 1:
            return train_here(job, setting, run, report, after_epoch)
        from hierbench.execution.ranks import train_on_ranks

        return train_on_ranks(job, setting, run, report, after_epoch)
    except Exception as error:
        if not is_out_of_memory(error):
            raise
    # Outside of the handler, which holds on to what was in memory.
    assert issubclass(job.found.cls, Method)
    raise OutOfMemoryError(what_would_fit(job, dataset, setting.device, setting.gpus, setting.devices))


def _rescore(job: Job, setting: Setting, run: Run) -> str | None:
    """Re-rank, and return the digest of the predictions it was done with."""
    from hierbench.training.posthoc import rescore

    assert job.spec.base is not None
    base = setting.store.run(job.spec.base)
    used = base.digest_of(PREDICTIONS)
    # A cluster's GPUs are not those of the machine that re-ranks.
    gpu = f"cuda:{setting.gpus[0] if setting.gpus else 0}"
    device = gpu if setting.device == "cuda" and torch.cuda.is_available() else "cpu"
    assert issubclass(job.found.cls, PostHoc)
    rescore(job, data_of(job, setting), base, run, device)
    return used
