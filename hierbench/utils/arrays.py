"""Reading arrays with NumPy: whole ones of numbers alone; object arrays, pickles, are refused.

Prepared arrays (.npy) may be links to another disk: their digest says whether they are the right ones. Predictions
(.npz) may not.
"""

import math
import mmap
import os
import struct
from pathlib import Path
from tempfile import TemporaryFile, gettempdir
from typing import IO, Any
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipInfo

import numpy as np
from numpy.typing import NDArray

from hierbench.utils.files import open_regular

NUMBERS = "biuf"  # kinds of dtype
TEXT = "US"
MAX_ARRAY_BYTES = 1 << 30  # bytes of all compressed arrays of a file, which are read into memory
SCRATCH_BYTES = 1 << 30  # of an array that is filled in memory
ROWS_AT_A_TIME = 1024  # whose columns are put in order
MAPPED_BYTES = 1 << 26  # of an array that is mapped rather than read


def load_array(path: Path) -> NDArray[Any]:
    """Read an .npy file into memory.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is not a whole .npy of numbers, or it is empty.
    """
    return np.array(map_array(path))


def map_array(path: Path, kinds: str = NUMBERS) -> NDArray[Any]:
    """Map an .npy file of some kinds of dtype into memory, read-only; errors as `load_array`."""
    with open_regular(path, follow=True) as file:
        size = os.fstat(file.fileno()).st_size
        if not file.read(6).startswith(np.lib.format.MAGIC_PREFIX):  # np.load leaves a damaged .npz open
            raise ValueError("it is not an .npy array of numbers")
    try:
        mapped = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # a damaged header fails in many ways
        if isinstance(error, OSError):
            raise
        raise ValueError(f"it is not an .npy array ({type(error).__name__}: {str(error)[:80]})") from None
    if not isinstance(mapped, np.memmap) or mapped.dtype.kind not in kinds:
        raise ValueError("it is not an .npy array of numbers")
    if mapped.offset + mapped.nbytes != size:
        raise ValueError("other bytes follow the array")
    return mapped


def release(array: NDArray[Any]) -> None:
    """Give back the memory of a mapped array's pages, which are read again where they are needed; of others nothing."""
    base: Any = array
    while base is not None and not isinstance(base, mmap.mmap):
        base = getattr(base, "base", None)
    if base is not None and hasattr(mmap, "MADV_DONTNEED"):
        base.madvise(mmap.MADV_DONTNEED)


def scratch(shape: tuple[int, ...], dtype: np.dtype[Any], folder: Path | None = None) -> NDArray[Any]:
    """Return an array to fill: in memory, or if it is large, mapped to a nameless file in `folder`, if there is one."""
    if folder is None or dtype.itemsize * math.prod(shape) <= SCRATCH_BYTES:
        return np.empty(shape, dtype)
    with TemporaryFile(dir=folder) as file:
        return np.memmap(file, dtype, "w+", shape=shape)


def with_columns(array: NDArray[Any], order: NDArray[Any]) -> NDArray[Any]:
    """Return the columns of an array [N, K] in an order [K], in memory or, if they are large, in a nameless file."""
    ordered = scratch(array.shape, array.dtype, Path(gettempdir()))
    for start in range(0, len(array), ROWS_AT_A_TIME):
        ordered[start : start + ROWS_AT_A_TIME] = array[start : start + ROWS_AT_A_TIME].take(order, axis=1)
        release(array)
        release(ordered)
    return ordered


def load_arrays(path: Path, *names: str, largest: int = 0) -> list[Any]:
    """Read arrays of numbers of an .npz by name; one that may be absent, written "NAME?", is None if it is.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is damaged, lacks an array, or more than `largest` bytes are compressed, as in bombs.
    """
    arrays = read_arrays(path, follow=False, largest=largest, in_place=True)
    for name in names:
        array = arrays.get(name.removesuffix("?"))
        if array is None and not name.endswith("?"):
            raise ValueError(f"it has no array {name!r}")
        if array is not None and array.dtype.kind in TEXT:
            raise ValueError(f"{name!r} is text, not numbers")
    return [arrays.get(name.removesuffix("?")) for name in names]


def read_arrays(
    path: Path, *, follow: bool = True, largest: int = MAX_ARRAY_BYTES, in_place: bool = False
) -> dict[str, NDArray[Any]]:
    """Return the arrays of an .npz by name, of numbers or text.

    Args:
        path: of the file.
        follow: whether it may be a symbolic link.
        largest: bytes of all compressed arrays, once unpacked.
        in_place: map large arrays that are not compressed in place of reading them; their checksums are not compared
            then, and what is written to them stays in memory.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is damaged, or an array holds Python objects, which are pickles, or is too large to unpack.
    """
    with open_regular(path, follow=follow) as file:
        try:
            with np.lib.npyio.NpzFile(file, allow_pickle=False) as content:
                assert content.zip is not None
                packed = _unreadable(content.zip.infolist(), largest)
                members = content.zip.infolist() if in_place and not packed else []
                mapped = {member.filename.removesuffix(".npy"): _map_member(path, file, member) for member in members}
                arrays = {name: array for name, array in mapped.items() if array is not None}
                arrays |= {name: content[name] for name in content.files if not packed and name not in arrays}
        except Exception as error:  # damaged zip files fail in many ways, and headers ask for more than the memory
            if "allow_pickle" in str(error):
                raise ValueError("it holds Python objects, a pickle, which is never read; save arrays") from None
            raise ValueError(f"it is not a complete .npz file ({type(error).__name__}: {str(error)[:120]})") from None
    if packed:
        raise ValueError(f"{packed[0].filename[:80]!r} is compressed, and too large; save it with numpy.savez")
    for name, array in arrays.items():
        # Text without letters takes no room in its file, for any length in its header.
        if not isinstance(array, np.ndarray) or array.dtype.kind not in NUMBERS + TEXT or not array.dtype.itemsize:
            raise ValueError(f"{name[:80]!r} holds no numbers and no text; save arrays of these")
    return arrays


def _map_member(path: Path, file: IO[bytes], member: ZipInfo) -> NDArray[Any] | None:
    """Map the large array of numbers that a member is as it is stored; None of others."""
    if member.compress_type != ZIP_STORED or member.file_size <= MAPPED_BYTES:
        return None
    file.seek(member.header_offset + 26)
    begin = member.header_offset + 30 + sum(struct.unpack("<HH", file.read(4)))  # after its name and extra field
    file.seek(begin)
    version = np.lib.format.read_magic(file)
    read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, is_fortran, dtype = read_header(file)
    if dtype.kind not in NUMBERS:
        return None
    offset = file.tell()
    array = np.memmap(path, dtype, "c", offset, shape, "F" if is_fortran else "C")  # PyTorch warns of read-only ones
    if offset - begin + array.nbytes != member.file_size:
        raise ValueError(f"{member.filename[:80]!r} has another size than its header says")
    return array


def _unreadable(members: list[ZipInfo], largest: int) -> list[ZipInfo]:
    """Return the members that are not unpacked: those of another compression, or all if they are too large."""
    packed = [member for member in members if member.compress_type != ZIP_STORED]
    if sum(member.file_size for member in packed) > largest:
        return packed
    return [member for member in packed if member.compress_type != ZIP_DEFLATED]
