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
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from hierbench.data.image import UnreadableImageError
from hierbench.data.source import DamagedArchiveError, Piece, Source
from hierbench.utils.files import sync_folder, write_bytes
from hierbench.utils.processes import num_cores

SPLITS = ("train", "val", "test")
TOGETHER = 16  # pieces that a thread loads and writes in one call; one at a time, preparing takes an eighth longer
WINDOW = 2  # such groups per core that are read ahead: bounds the memory
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

    def write(self, pieces: list[Piece]) -> list[tuple[int, str]]:
        """Load pieces of this split and write them; return of each how many rows it has and why it cannot be read."""
        found: list[tuple[int, str]] = []
        start, adjacent = 0, list[NDArray[Any]]()  # the first row of what is to be written in one call
        for piece in pieces:
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
    cores = num_cores()
    unreadable: dict[tuple[str, int], str] = {}
    group: list[Piece] = []
    pending: deque[tuple[list[Piece], Future[list[tuple[int, str]]]]] = deque()
    flushing: Future[None] | None = None
    on_disk: dict[str, bytes] = {}  # the marks of each split
    row_bytes = 3 * math.prod(source.image_size)
    written = flushed = 0

    def flush(marks: dict[str, bytes]) -> None:
        for split, done in marks.items():
            if done != on_disk.get(split):
                files[split].flush(done)
                on_disk[split] = done

    def marks() -> dict[str, bytes]:
        return {split: file.done.tobytes() for split, file in files.items()}

    def hand_over() -> None:
        if group:
            pending.append((group[:], pool.submit(files[group[0].split].write, group[:])))
            group.clear()
        if len(pending) >= WINDOW * cores:
            finish()

    def finish() -> None:
        nonlocal written, flushed, flushing
        pieces, future = pending.popleft()
        for piece, (num, error) in zip(pieces, future.result(), strict=True):
            if error:
                unreadable[piece.split, piece.start] = error
                continue
            files[piece.split].done[piece.start : piece.start + num] = True
            written += num
            progress(written)
        if (written - flushed) * row_bytes >= FLUSH_EVERY and (flushing is None or flushing.done()):
            if flushing is not None:
                flushing.result()  # the disk may have failed
            flushing, flushed = pool.submit(flush, marks()), written  # decoding continues meanwhile

    with ExitStack() as stack:
        files: dict[str, RowFile] = {}
        for split in SPLITS:
            files[split] = RowFile(folder, split, len(source.labels[split]), (3, *source.image_size))
            stack.callback(files[split].file.close)
        written = flushed = sum(int(file.done.sum()) for file in files.values())
        pool = ThreadPoolExecutor(cores + 1)  # one of them flushes
        try:
            damaged = None
            try:
                for piece in source.pieces():
                    if len(group) == TOGETHER or (group and group[0].split != piece.split):
                        hand_over()
                    if not files[piece.split].done[piece.start]:
                        group.append(piece)
            except DamagedArchiveError as error:
                damaged = error
            hand_over()
            while pending:
                finish()
            if damaged is not None:
                for split, row in damaged.rows:
                    files[split].done[row] = False
                raise damaged
            if flushing is not None:
                flushing.result()
            flush(marks())
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
            with suppress(OSError):
                flush(marks())  # also what an interrupted attempt has read
    return {split: file.done for split, file in files.items()}, unreadable


def rows_file(folder: Path, split: str) -> Path:
    """Return where a split's rows are written."""
    return folder / f"{split}-rows.npy"


def images_file(folder: Path, split: str) -> Path:
    """Return the file of a split's images: `<split>-images.npy` or, while that does not exist, the file of all rows."""
    images = folder / f"{split}-images.npy"
    return images if images.exists() else rows_file(folder, split)
