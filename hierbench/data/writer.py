"""From pieces to arrays: decoded on all cores, written in place in any order, and resumable after a kill.

The folder holds per split `<split>-rows.npy`, written row by row as images come, and `<split>-done`, a byte per row
that says which rows are on the disk. The marks are written after the rows they stand for are flushed, so that neither
a kill nor a power cut leaves a mark without its row. Neither file is changed in any other way.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from hierbench.data.image import UnreadableImageError
from hierbench.data.source import DamagedArchiveError, Labels, Piece, Source
from hierbench.utils.files import sync_folder, write_bytes
from hierbench.utils.processes import num_cores

SPLITS = ("train", "val", "test")
WINDOW = 16  # pieces per core that are read ahead: bounds the memory
FLUSH_EVERY = 2048  # rows between two flushes; a kill can cost those of two, because one runs behind
Rows = NDArray[np.bool_]


@dataclass
class Outcome:
    """Which rows are written, and the errors of those that could not be read, by (split, row)."""

    done: dict[str, Rows]
    unreadable: dict[tuple[str, int], str] = field(default_factory=dict)

    @property
    def num_missing(self) -> int:
        """Rows that are not written."""
        return sum(int((~rows).sum()) for rows in self.done.values())


class _Files:
    """The open image files of a folder, and the marks."""

    def __init__(self, folder: Path, source: Source) -> None:
        self.folder = folder
        self.row_bytes = 3 * source.image_size[0] * source.image_size[1]
        self.files: dict[str, IO[bytes]] = {}
        self.offset: dict[str, int] = {}
        self.done: dict[str, Rows] = {}
        try:
            self._open(source)
        except BaseException:
            self.close()
            raise

    def _open(self, source: Source) -> None:
        for split in SPLITS:
            num = len(source.labels[split])
            path, marks = rows_file(self.folder, split), self.folder / f"{split}-done"
            if path.is_symlink() or (path.is_file() and path.stat().st_nlink > 1):
                path.unlink()  # it is written in place, which would change a file that is not in this folder
            # Without a buffer: on a full disk closing would fail too, where the header is still in it.
            self.files[split] = path.open("r+b" if path.exists() else "w+b", buffering=0)
            write_header(self.files[split], num, source.image_size)
            self.offset[split] = self.files[split].tell()
            size = self.offset[split] + num * self.row_bytes
            going_on = path.stat().st_size == size and marks.exists() and marks.stat().st_size == num
            if not going_on:
                marks.unlink(missing_ok=True)
                sync_folder(self.folder)
            self.done[split] = np.fromfile(marks, dtype=np.bool_) if going_on else np.zeros(num, dtype=np.bool_)
            os.ftruncate(self.files[split].fileno(), size)

    def write(self, piece: Piece) -> tuple[int, str]:
        """Load a piece and write it; return how many rows it has and the error."""
        try:
            images = piece.load()
        except UnreadableImageError as error:
            return 1, str(error)
        assert images.dtype == np.uint8 and images[0].nbytes == self.row_bytes, (images.dtype, images.shape)
        block, place = (
            np.ascontiguousarray(images).data.cast("B"),
            self.offset[piece.split] + piece.start * self.row_bytes,
        )
        while block:  # a write may be short
            written = os.pwrite(self.files[piece.split].fileno(), block, place)
            block, place = block[written:], place + written
        return len(images), ""

    def marks(self) -> dict[str, bytes]:
        """Return the marks of the rows that are written by now."""
        return {split: rows.tobytes() for split, rows in self.done.items()}

    def flush(self, marks: dict[str, bytes]) -> None:
        """Put the rows on the disk, then the marks, which were taken before."""
        for split, file in self.files.items():
            os.fsync(file.fileno())
            write_bytes(self.folder / f"{split}-done", marks[split])

    def close(self) -> None:
        """Close the files."""
        for file in self.files.values():
            file.close()


def write_header(file: IO[bytes], num: int, image_size: tuple[int, int]) -> None:
    """Write the .npy header of a uint8 array [num, 3, H, W]."""
    header = {"descr": "|u1", "fortran_order": False, "shape": (num, 3, *image_size)}
    np.lib.format.write_array_header_1_0(file, header)


def write_images(source: Source, folder: Path, progress: Callable[[int], None]) -> Outcome:
    """Write all images that the source brings and that are not there yet.

    Args:
        source: what to read.
        folder: where the files go; may hold those of a killed attempt.
        progress: called with the number of rows written so far, those of before included.
    """
    cores = num_cores()
    files = _Files(folder, source)
    outcome = Outcome(files.done)
    pending: deque[tuple[Piece, Future[tuple[int, str]]]] = deque()
    written = flushed = sum(int(rows.sum()) for rows in files.done.values())

    flushing: Future[None] | None = None

    def finish() -> None:
        nonlocal written, flushed, flushing
        piece, future = pending.popleft()
        num, error = future.result()
        if error:
            outcome.unreadable[piece.split, piece.start] = error
            return
        files.done[piece.split][piece.start : piece.start + num] = True
        written += num
        progress(written)
        if written - flushed >= FLUSH_EVERY:
            if flushing is not None:
                flushing.result()  # the disk is slower than decoding, or has failed
            flushing = disk.submit(files.flush, files.marks())  # decoding goes on meanwhile
            flushed = written

    with ThreadPoolExecutor(1) as disk, ThreadPoolExecutor(cores) as pool:
        try:
            try:
                for piece in source.pieces():
                    if files.done[piece.split][piece.start]:
                        continue
                    pending.append((piece, pool.submit(files.write, piece)))
                    if len(pending) >= WINDOW * cores:
                        finish()
            except DamagedArchiveError as error:
                while pending:
                    finish()
                for split, row in error.rows:
                    files.done[split][row] = False
                raise
            while pending:
                finish()
            if flushing is not None:
                flushing.result()
            files.flush(files.marks())
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
            disk.shutdown(wait=True)
            with suppress(OSError):
                files.flush(files.marks())  # also what an interrupted attempt has read
            files.close()
    return outcome


def rows_file(folder: Path, split: str) -> Path:
    """Return where a split's rows are written."""
    return folder / f"{split}-rows.npy"


def keep_done_rows(source: Source, folder: Path, done: dict[str, Rows]) -> dict[str, Labels]:
    """Leave out the rows that are not written: copy the others to `<split>-images.npy`; return their labels.

    A split that is whole is not copied; its file is renamed when all else is there.
    """
    labels = {}
    for split, rows in done.items():
        labels[split] = source.labels[split][rows]
        if rows.all():
            continue
        images = np.load(rows_file(folder, split), mmap_mode="r")
        with (folder / f"{split}-images.npy").open("wb") as file:
            write_header(file, int(rows.sum()), source.image_size)
            for start in range(0, len(rows), 256):
                file.write(images[start : start + 256][rows[start : start + 256]].tobytes())
            file.flush()
            os.fsync(file.fileno())
    return labels
