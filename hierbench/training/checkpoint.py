"""Checkpoints: files of `torch.save`, sealed by their SHA-256 in the comment at the end of the zip archive."""

import io
import math
import struct
import time
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch

from hierbench.utils.files import open_regular, write_bytes

LABEL = b"sha256 "
CHECKPOINT_COSTS = 20  # times the cost of a checkpoint that pass before the next
CHEAP = 0.1  # seconds
SEAL = len(LABEL) + 64
NO_COMMENT = struct.pack("<H", 0)  # the archive's last field is the length of its comment


class Pace:
    """Writes checkpoints that cost 5% of the time at most: once 20 times the cost of the last one has passed since.

    One that cost less than `CHEAP` is followed by the next in any case: on small networks that is every epoch.
    """

    def __init__(self) -> None:
        self.saved = time.monotonic()
        self.cost = 0.0

    def save(self, file: Path, content: dict[str, Any], *, is_last: bool) -> None:
        """Write a checkpoint if it is due, or the last."""
        started = time.monotonic()
        if is_last or self.cost < CHEAP or started - self.saved >= CHECKPOINT_COSTS * self.cost:
            save_checkpoint(file, content)
            self.saved = time.monotonic()
            self.cost = self.saved - started


def save_checkpoint(path: Path, content: dict[str, Any]) -> None:
    """Write a checkpoint atomically; `torch.load` reads it as any other."""
    buffer = io.BytesIO()  # torch.save seeks, and one large write is faster than many small ones
    torch.save(content, buffer)
    assert buffer.getbuffer()[-2:] == NO_COMMENT
    buffer.seek(-2, io.SEEK_END)
    buffer.write(struct.pack("<H", SEAL))
    buffer.write(LABEL + sha256(buffer.getbuffer()).hexdigest().encode())
    write_bytes(path, buffer.getbuffer())


def load_sealed(path: Path) -> Any:
    """Return the content of a checkpoint, on the CPU.

    Raises:
        OSError: it cannot be read.
        ValueError: it is damaged.
    """
    with open_regular(path) as file:
        content = file.read()
    if content[-SEAL:] != LABEL + sha256(memoryview(content)[:-SEAL]).hexdigest().encode():
        raise ValueError(f"{path} is damaged")
    return torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)


def load_checkpoint(path: Path) -> dict[str, Any] | None:
    """Read a training's checkpoint; if it is missing or damaged, return None, and the job starts over."""
    try:
        content = load_sealed(path)
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) and no_progress(0).keys() <= content.keys() else None


def no_progress(threads: int) -> dict[str, Any]:
    """Return the progress of a training that is at its start, to run with this many threads."""
    # "best_top1" is the best epoch's `Method.merit`, under the name that it has in older checkpoints.
    return {"history": [], "best_top1": -math.inf, "best_epoch": 0, "best": {}, "threads": threads}
