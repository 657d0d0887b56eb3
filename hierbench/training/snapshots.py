"""Snapshots of a model while it is trained: which epochs are kept, where they are stored, and which run has them.

`<run>/snapshots/epoch-005.pt` holds the model's state after its fifth epoch, `epoch-005.json` its measurements. They
are no part of a job's id, since they change no result; so a run can be finished without them. Such a run is left as it
is, and the job is trained a second time in `<runs>/collapse/<id>/`.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from hierbench.models import Classifier
from hierbench.runs.job import Job
from hierbench.runs.store import Run, Store
from hierbench.training.checkpoint import load_sealed, no_progress, save_checkpoint
from hierbench.utils.errors import UserError
from hierbench.utils.files import read_json_object, remove_made
from hierbench.utils.lock import Lock

PART_OF_TRAINING = 20  # the default keeps one epoch in twenty
MOST_BETWEEN = 5
SNAPSHOT = re.compile(r"epoch-\d{3,}\.(pt|json)")


def default_every(epochs: int) -> int:
    """Return after how many epochs a snapshot is taken: 5 of 100 as in the paper, a twentieth of a shorter training."""
    return max(1, min(MOST_BETWEEN, epochs // PART_OF_TRAINING))


def kept_epochs(every: int, epochs: int) -> list[int]:
    """Return the epochs of which a snapshot is kept: every `every` epochs, counted from 1, and the last."""
    return sorted({*range(every, epochs + 1, every), epochs})


def snapshot_file(run: Run, epoch: int) -> Path:
    """Return the path of the snapshot of an epoch."""
    return run.subfolder("snapshots") / f"epoch-{epoch:03d}.pt"


def measured_file(run: Run, epoch: int) -> Path:
    """Return the path of the measurements of a snapshot."""
    return snapshot_file(run, epoch).with_suffix(".json")


def keep_snapshot(run: Run, every: int, epochs: int, epoch: int, model: Classifier) -> None:
    """Keep the model after an epoch if it is one of those; `every` 0 keeps none."""
    if every and epoch in kept_epochs(every, epochs):
        run.guard()
        file = snapshot_file(run, epoch)
        file.parent.mkdir(exist_ok=True)
        measured_file(run, epoch).unlink(missing_ok=True)  # of the snapshot that is overwritten
        save_checkpoint(file, {"model": model.state_dict()})


def load_snapshot(run: Run, epoch: int) -> dict[str, Tensor]:
    """Return the model's state after an epoch, on the CPU.

    Raises:
        UserError: the file is missing or damaged.
    """
    file = snapshot_file(run, epoch)
    try:
        state: dict[str, Tensor] = load_sealed(file)["model"]
    except (OSError, ValueError):
        raise UserError(f"{file} cannot be read; remove {file.parent} to train it again") from None
    return state


def is_usable(run: Run, every: int, epochs: int) -> bool:
    """Whether a run has, of its epochs so far, all snapshots to be kept, or their measurements."""
    so_far = epochs if run.done else run.epochs_done
    return all(
        snapshot_file(run, epoch).exists() or measured_file(run, epoch).exists()
        for epoch in kept_epochs(every, epochs)
        if epoch <= so_far
    )


def place(plan: Sequence[Job], store: Store, every: int, elsewhere: frozenset[str]) -> Store:
    """Return the store in which every job has its snapshots, or can be trained to have them.

    Jobs of `elsewhere` belong in no table; their runs are apart in any case.
    """
    lacking = {job.id for job in plan if not is_usable(store.run(job.id), every, job.spec.train.epochs)}
    return Store(store.root, elsewhere | lacking)


def is_complete(run: Run, every: int, epochs: int) -> bool:
    """Whether a run is finished and has all its snapshots."""
    return run.done and is_usable(run, every, epochs)


def restart(plan: Sequence[Job], store: Store, every: int) -> None:
    """Start over, with the finished run's number of threads, if a run in the separate folder lacks snapshots.

    The number of threads decides how sums are rounded on a CPU; with the same one the second training repeats the
    first bit by bit.
    """
    for job in plan:
        run, finished = store.run(job.id), Run(store.root / job.id)
        threads = read_json_object(finished.folder / "environment.json").get("threads") if finished.done else None
        has_start = threads is None or (run.folder / "checkpoint.pt").exists()
        if job.id not in store.apart or (has_start and is_usable(run, every, job.spec.train.epochs)):
            continue
        run.folder.mkdir(parents=True, exist_ok=True)
        lock = Lock(run.folder)
        try:  # both are checked under the lock
            if not lock.acquire():
                continue  # another process is training it
            if not is_usable(run, every, job.spec.train.epochs):
                run.clear()
                remove_made(run.subfolder("snapshots"), SNAPSHOT)
            if threads is not None and not (run.folder / "checkpoint.pt").exists():
                run.plan(job.spec.content())
                save_checkpoint(run.folder / "checkpoint.pt", no_progress(threads))
        finally:
            lock.release()


def differs(job: Job, store: Store) -> bool:
    """Whether a job's second training ended with other numbers than its first; False if there was only one."""
    run, finished = store.run(job.id), Run(store.root / job.id)
    if job.id not in store.apart or not run.done or not finished.done:
        return False
    return any(run.digest_of(name) != finished.digest_of(name) for name in ("history.csv", "metrics.json"))
