"""From pieces to arrays: decoded on all cores, written in place in any order, and resumable after a kill.

Per split the folder holds `<split>-rows.npy`, written row by row as images come, and `<split>-done`, a byte per row
that says which rows are on disk. Marks are written after their rows are flushed, so that neither a kill nor a power
cut leaves a mark without its row.
"""

import math
import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from hierbench.data.image import UnreadableImageError
from hierbench.data.source import DamagedArchiveError, Piece, Source
from hierbench.utils.files import sync_folder, write_bytes
from hierbench.utils.processes import num_cores

SPLITS = ("train", "val", "test")
ABOVE = "above"  # a further split: examples whose label is a node above the classes, as `Nodes` numbers it
PIECES_AT_ONCE = 16  # pieces that a thread takes and writes at a time; one by one, preparing takes an eighth longer
WINDOW = 32  # pieces per core that are read ahead: bounds the memory, and keeps a group waiting for each thread
FLUSH_EVERY = 16 << 20  # bytes of rows before the next flush: a kill costs the later ones

sync_data = getattr(os, "fdatasync", os.fsync)  # macOS has no fdatasync


class RowFile:
    """An array of rows, such as a split's images, written in any order by several threads, and a mark for each row.

    Args:
        folder: of the array's file and that of its marks.
        split: their names begin with it.
        num: rows.
        shape: of a row.
        dtype: of the array.
        groups: rows are shown as [groups, num / groups, *shape]; None shows them as [num, *shape].
    """

    def __init__(
        self,
        folder: Path,
        split: str,
        num: int,
        shape: tuple[int, ...],
        dtype: Any = np.uint8,
        groups: int | None = None,
    ) -> None:
        path = rows_file(folder, split)
        self.marks = folder / f"{split}-done"
        self.row_bytes = math.prod(shape) * np.dtype(dtype).itemsize
        self.flushed = b""  # the marks that are on the disk
        if path.is_symlink():
            path.unlink()  # it is written in place, which would change a file that is not in this folder
        # Without a buffer: on a full disk closing would fail too, where the header is still in it.
        self.file = path.open("r+b" if path.exists() else "w+b", buffering=0)
        try:
            rows = (num,) if groups is None else (groups, num // groups)
            write_header(self.file, (*rows, *shape), dtype)
            self.start = self.file.tell()
            size = self.start + num * self.row_bytes
            if path.stat().st_size == size and self.marks.exists() and self.marks.stat().st_size == num:
                self.done = np.fromfile(self.marks, dtype=np.bool_)
            else:
                self.done = np.zeros(num, dtype=np.bool_)
                self.marks.unlink(missing_ok=True)
                sync_folder(folder)
            os.ftruncate(self.file.fileno(), size)
        except BaseException:
            self.file.close()
            raise

    def write(self, piece: Piece) -> tuple[int, str]:
        """Load a piece of this split and write it; return how many rows it has and why it cannot be read."""
        try:
            images = piece.load()
        except UnreadableImageError as error:
            return 1, str(error)
        self.write_rows(piece.start, images)
        return len(images), ""

    def write_rows(self, start: int, rows: NDArray[Any]) -> None:
        """Write rows from row `start` on; they are not marked yet."""
        assert rows[0].nbytes == self.row_bytes, (rows.dtype, rows.shape)
        remaining = np.ascontiguousarray(rows).data.cast("B")
        place = self.start + start * self.row_bytes
        while remaining:
            written = os.pwrite(self.file.fileno(), remaining, place)  # may be short
            remaining = remaining[written:]
            place = place + written

    def flush(self) -> None:
        """Put the rows on disk, then their marks."""
        marks = self.done.tobytes()
        if marks != self.flushed:
            sync_data(self.file.fileno())  # the file has its size from the beginning
            write_bytes(self.marks, marks)
            self.flushed = marks


def write_header(file: IO[bytes], shape: tuple[int, ...], dtype: Any = np.uint8) -> None:
    """Write the .npy header of an array."""
    header = {"descr": np.lib.format.dtype_to_descr(np.dtype(dtype)), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)


class _Groups:
    """Groups of pieces that threads load and write, and their results; see `write_images`."""

    def __init__(self, files: dict[str, RowFile], pool: ThreadPoolExecutor, progress: Callable[[int], None]) -> None:
        self.files = files
        self.pool = pool
        self.progress = progress
        self.pending: deque[tuple[list[Piece], Future[list[tuple[int, str]]]]] = deque()
        self.written = self.flushed = sum(int(file.done.sum()) for file in files.values())
        self.unreadable: dict[tuple[str, int], str] = {}

    def add(self, pieces: list[Piece]) -> None:
        """Give a group to the threads."""
        self.pending.append(
            (pieces, self.pool.submit(lambda: [self.files[piece.split].write(piece) for piece in pieces]))
        )

    def finish(self) -> None:
        """Wait for the oldest group, mark its rows, and flush where enough is written: the threads have others."""
        pieces, future = self.pending.popleft()
        for piece, (num, error) in zip(pieces, future.result(), strict=True):
            if error:
                self.unreadable[piece.split, piece.start] = error
            else:
                self.files[piece.split].done[piece.start : piece.start + num] = True
                self.written += num
                self.progress(self.written)
        if (self.written - self.flushed) * self.files[SPLITS[0]].row_bytes >= FLUSH_EVERY:
            self.flush()

    def flush(self) -> None:
        """Put all rows and marks on disk."""
        for file in self.files.values():
            file.flush()
        self.flushed = self.written

    def stop(self) -> None:
        """Let the threads end after their groups, and flush all written rows to disk, also after an interruption."""
        self.pool.shutdown(wait=True, cancel_futures=True)
        with suppress(OSError):
            while self.pending:
                future = self.pending[0][1]
                if future.cancelled() or future.exception() is not None:
                    self.pending.popleft()
                else:
                    self.finish()
            self.flush()


def write_images(
    source: Source, folder: Path, progress: Callable[[int], None]
) -> tuple[dict[str, NDArray[np.bool_]], dict[tuple[str, int], str]]:
    """Write all images, or vectors, that the source brings and that are not written yet.

    Args:
        source: of the images.
        folder: where the files go; may hold those of a killed attempt.
        progress: called with the number of rows written so far, those of earlier attempts included.

    Returns:
        Per split [N], of vectors [V N], which rows are written; and {(split, row): why it cannot be read}.
    """
    with ExitStack() as stack:
        files: dict[str, RowFile] = {}
        for split in source.labels:
            shape = source.shape(split)
            vectors = source.vectors
            if vectors is None:
                files[split] = RowFile(folder, split, shape[0], shape[1:])
            else:
                files[split] = RowFile(folder, split, shape[0] * shape[1], shape[2:], vectors.dtype, shape[0])
            stack.callback(files[split].file.close)
        num_missing = sum(int(np.count_nonzero(~file.done)) for file in files.values())
        cores = num_cores()
        together = max(1, min(PIECES_AT_ONCE, num_missing // (2 * cores)))  # few are shared by all cores
        groups = _Groups(files, ThreadPoolExecutor(cores), progress)
        stack.callback(groups.stop)
        pieces = (piece for piece in source.pieces() if not files[piece.split].done[piece.start])
        try:
            while group := list(islice(pieces, together)):
                groups.add(group)
                while len(groups.pending) * together >= WINDOW * cores:
                    groups.finish()
        except DamagedArchiveError as error:
            while groups.pending:
                groups.finish()
            for split, row in error.rows:
                files[split].done[row] = False
            raise
        while groups.pending:
            groups.finish()
        groups.flush()
    return {split: file.done for split, file in files.items()}, groups.unreadable


def rows_file(folder: Path, split: str) -> Path:
    """Return where a split's rows are written."""
    return folder / f"{split}-rows.npy"


def images_file(folder: Path, split: str) -> Path:
    """Return the file of a split's images: `<split>-images.npy` or, while that does not exist, the file of all rows."""
    images = folder / f"{split}-images.npy"
    return images if images.exists() else rows_file(folder, split)
