"""Snapshots of a model while it is trained: which epochs are kept, and where they are stored.

`<run>/snapshots/epoch-005.pt` holds the model's state after its fifth epoch, `epoch-005.json` its measurements. They
are no part of a job's id, since they change no result; so they have a runs folder of their own, `<runs>/collapse`.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from hierbench.models import Classifier
from hierbench.runs.job import Job
from hierbench.runs.record_reader import read_record
from hierbench.runs.store import Run, Store
from hierbench.training.checkpoint import load_sealed, save_checkpoint
from hierbench.utils.errors import UserError
from hierbench.utils.files import remove_made
from hierbench.utils.lock import Lock

PART_OF_TRAINING = 20  # the default keeps one epoch in twenty
MOST_BETWEEN = 5
SNAPSHOT = re.compile(r"epoch-\d{3,}\.(pt|json)")


def default_every(epochs: int) -> int:
    """Return after how many epochs a snapshot is taken: 5 of 100 as in the paper, a twentieth of a shorter training."""
    return max(1, min(MOST_BETWEEN, epochs // PART_OF_TRAINING))


def kept_epochs(every: int, epochs: int) -> list[int]:
    """Return the epochs with snapshots: every `every` epochs, counted from 1, and the last."""
    return sorted({*range(every, epochs + 1, every), epochs})


def snapshot_file(run: Run, epoch: int) -> Path:
    """Return the path of the snapshot of an epoch."""
    return run.subfolder("snapshots") / f"epoch-{epoch:03d}.pt"


def measured_file(run: Run, epoch: int) -> Path:
    """Return the path of the measurements of a snapshot."""
    return snapshot_file(run, epoch).with_suffix(".json")


def keep_snapshot(run: Run, every: int, epochs: int, epoch: int, model: Classifier) -> None:
    """Keep the model after every `every`-th epoch; 0 keeps no model."""
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
    record = read_record(run.folder)
    so_far = epochs if record.done else record.epochs_done
    return all(
        snapshot_file(run, epoch).exists() or measured_file(run, epoch).exists()
        for epoch in kept_epochs(every, epochs)
        if epoch <= so_far
    )


def is_complete(run: Run, every: int, epochs: int) -> bool:
    """Whether a run is finished and has all its snapshots."""
    return read_record(run.folder).done and is_usable(run, every, epochs)


def restart(plan: Sequence[Job], store: Store, every: int) -> None:
    """Clear runs that lack snapshots, as they were trained to keep fewer, so that they start over."""
    for job in plan:
        run = store.run(job.id)
        if is_usable(run, every, job.spec.train.rounds):
            continue
        lock = Lock(run.folder)
        try:
            if lock.acquire() and not is_usable(run, every, job.spec.train.rounds):  # else another process trains it
                run.clear()
                remove_made(run.subfolder("snapshots"), SNAPSHOT)
        finally:
            lock.release()
