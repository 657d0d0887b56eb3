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
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from threading import Event
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from hierbench.data.image import UnreadableImageError
from hierbench.data.source import DamagedArchiveError, Piece, Source
from hierbench.utils.files import sync_folder, write_bytes
from hierbench.utils.processes import num_cores

SPLITS = ("train", "val", "test")
TOGETHER = 16  # pieces that a thread takes and writes at a time; one by one, preparing takes an eighth longer
WINDOW = 32  # pieces per core that are read ahead: bounds the memory, and keeps a group waiting for each thread
FLUSH_EVERY = 16 << 20  # bytes of rows before the next flush, which waits for no other: a kill costs what came since

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
        dtype: type[np.generic] = np.uint8,
        groups: int | None = None,
    ) -> None:
        path, self.marks = rows_file(folder, split), folder / f"{split}-done"
        self.row_bytes = math.prod(shape) * np.dtype(dtype).itemsize
        if path.is_symlink() or (path.is_file() and path.stat().st_nlink > 1):
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

    def write(self, pieces: list[Piece], stopped: Callable[[], bool] = lambda: False) -> list[tuple[int, str]]:
        """Load pieces of this split until `stopped`, and write them.

        Returns:
            Of each that was loaded, how many rows it has and why it cannot be read.
        """
        found: list[tuple[int, str]] = []
        start, adjacent = 0, list[NDArray[Any]]()  # the first row of what is to be written in one call
        for piece in pieces:
            if stopped():
                break
            try:
                images = piece.load()
            except UnreadableImageError as error:
                found.append((1, str(error)))
                continue
            assert images.dtype == np.uint8, images.dtype
            if piece.start != start + sum(map(len, adjacent)):
                self.write_rows(start, *adjacent)
                start, adjacent = piece.start, []
            adjacent.append(images)
            found.append((len(images), ""))
        self.write_rows(start, *adjacent)
        return found

    def write_rows(self, start: int, *parts: NDArray[Any]) -> None:
        """Write arrays of rows one after the other, from row `start` on; they are not marked yet."""
        assert all(rows[0].nbytes == self.row_bytes for rows in parts), [(rows.dtype, rows.shape) for rows in parts]
        blocks = [np.ascontiguousarray(rows).data.cast("B") for rows in parts]
        place = self.start + start * self.row_bytes
        while blocks:
            written = os.pwritev(self.file.fileno(), blocks, place)  # may be short
            place += written
            while blocks and written >= len(blocks[0]):
                written -= len(blocks.pop(0))
            if blocks:
                blocks[0] = blocks[0][written:]

    def flush(self, done: bytes) -> None:
        """Put the rows on disk, then the marks, which were taken before."""
        sync_data(self.file.fileno())  # the file has its size from the beginning
        write_bytes(self.marks, done)


def write_header(file: IO[bytes], shape: tuple[int, ...], dtype: type[np.generic] = np.uint8) -> None:
    """Write the .npy header of an array."""
    header = {"descr": np.lib.format.dtype_to_descr(np.dtype(dtype)), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)


class _Threads:
    """Threads that load and write groups of pieces, and one that puts them on disk meanwhile.

    Args:
        files: of each split.
        left: rows that are not written yet; few are shared by all cores.
        progress: called with the number of rows written so far.
    """

    def __init__(self, files: dict[str, RowFile], left: int, progress: Callable[[int], None]) -> None:
        self.files, self.progress, self.cores = files, progress, num_cores()
        self.together = max(1, min(TOGETHER, left // (2 * self.cores)))
        self.pool = ThreadPoolExecutor(self.cores + 1)  # one of them flushes
        self.stopping = Event()
        self.group: list[Piece] = []
        self.pending: deque[tuple[list[Piece], Future[list[tuple[int, str]]]]] = deque()
        self.flushing: Future[None] | None = None
        self.on_disk: dict[str, bytes] = {}  # the marks of each split
        self.written = self.flushed = sum(int(file.done.sum()) for file in files.values())
        self.unreadable: dict[tuple[str, int], str] = {}

    def take(self, piece: Piece) -> None:
        """Add a piece to the group, which is handed over once it is full."""
        self.group.append(piece)
        if len(self.group) == self.together:
            self.hand_over()

    def hand_over(self) -> None:
        """Give the group to the threads, and wait while they have too many."""
        pieces = sorted(self.group, key=attrgetter("split"))
        self.pending.append((pieces, self.pool.submit(self._write, pieces)))
        self.group = []
        while sum(len(pieces) for pieces, _ in self.pending) >= WINDOW * self.cores:
            self.finish()

    def _write(self, pieces: list[Piece]) -> list[tuple[int, str]]:
        found: list[tuple[int, str]] = []
        for split, some in groupby(pieces, key=attrgetter("split")):
            found += self.files[split].write(list(some), self.stopping.is_set)
        return found

    def finish(self) -> None:
        """Wait for the oldest group, mark its rows, and begin to flush where enough is written."""
        pieces, future = self.pending.popleft()
        self._mark(pieces, future.result())
        row_bytes = self.files[SPLITS[0]].row_bytes
        flushing = self.flushing is not None and not self.flushing.done()
        if (self.written - self.flushed) * row_bytes >= FLUSH_EVERY and not flushing:
            self.wait()
            self.flushing = self.pool.submit(self.flush, self._marks())  # decoding continues meanwhile
            self.flushed = self.written

    def _mark(self, pieces: list[Piece], found: list[tuple[int, str]]) -> None:
        for piece, (num, error) in zip(pieces, found, strict=False):  # fewer are found once it stops
            if error:
                self.unreadable[piece.split, piece.start] = error
            else:
                self.files[piece.split].done[piece.start : piece.start + num] = True
                self.written += num
                self.progress(self.written)

    def _marks(self) -> dict[str, bytes]:
        return {split: file.done.tobytes() for split, file in self.files.items()}

    def flush(self, marks: dict[str, bytes] | None = None) -> None:
        """Put rows and marks on disk, by default all."""
        for split, done in (self._marks() if marks is None else marks).items():
            if done != self.on_disk.get(split):
                self.files[split].flush(done)
                self.on_disk[split] = done

    def wait(self) -> None:
        """Wait for the last flush, and raise its error: the disk may have failed."""
        if self.flushing is not None:
            self.flushing.result()

    def stop(self) -> None:
        """Let the threads end after their next piece, and put on disk what was written, also if it was interrupted."""
        self.stopping.set()
        self.pool.shutdown(wait=True, cancel_futures=True)
        for pieces, future in self.pending:
            if not future.cancelled() and future.exception() is None:
                self._mark(pieces, future.result())
        with suppress(OSError):
            self.flush()


def write_images(
    source: Source, folder: Path, progress: Callable[[int], None]
) -> tuple[dict[str, NDArray[np.bool_]], dict[tuple[str, int], str]]:
    """Write all images that the source brings and that are not written yet.

    Args:
        source: what to read.
        folder: where the files go; may hold those of a killed attempt.
        progress: called with the number of rows written so far, those of earlier attempts included.

    Returns:
        Per split [N], which rows are written; and {(split, row): why it cannot be read}.
    """
    with ExitStack() as stack:
        files: dict[str, RowFile] = {}
        for split in SPLITS:
            files[split] = RowFile(folder, split, len(source.labels[split]), (3, *source.image_size))
            stack.callback(files[split].file.close)
        left = sum(int(np.count_nonzero(~file.done)) for file in files.values())
        threads = _Threads(files, left, progress)
        try:
            damaged = None
            try:
                for piece in source.pieces():
                    if not files[piece.split].done[piece.start]:
                        threads.take(piece)
            except DamagedArchiveError as error:
                damaged = error
            threads.hand_over()
            while threads.pending:
                threads.finish()
            if damaged is not None:
                for split, row in damaged.rows:
                    files[split].done[row] = False
                raise damaged
            threads.wait()
            threads.flush()
        finally:
            threads.stop()
    return {split: file.done for split, file in files.items()}, threads.unreadable


def rows_file(folder: Path, split: str) -> Path:
    """Return where a split's rows are written."""
    return folder / f"{split}-rows.npy"


def images_file(folder: Path, split: str) -> Path:
    """Return the file of a split's images: `<split>-images.npy` or, while that does not exist, the file of all rows."""
    images = folder / f"{split}-images.npy"
    return images if images.exists() else rows_file(folder, split)
