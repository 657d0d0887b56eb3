"""Reading .npy arrays of numbers, none of which promises more than its file holds; object arrays, pickles, are refused.

Prepared arrays (.npy) may be links to another disk: their digest says whether they are the right ones. Predictions
(.npz) may not.
"""

import os
import struct
import zipfile
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
from numpy.typing import NDArray

from hierbench.utils.files import open_regular

HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
NUMBERS = "biuf"  # kinds of dtype
TEXT = "US"
LARGEST = 1 << 32  # bytes of a compressed array, which has to be held in memory


def load_array(path: Path) -> NDArray[Any]:
    """Read an .npy file into memory.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is not a whole .npy of numbers, or it is empty.
    """
    return np.array(map_array(path))


def map_array(path: Path) -> NDArray[Any]:
    """Map an .npy file into memory, read-only; errors as `load_array`."""
    with open_regular(path, follow=True) as file:
        size = os.fstat(file.fileno()).st_size
    try:
        mapped = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError):
        raise
    except Exception as error:  # a damaged header fails in many ways
        raise ValueError(f"{type(error).__name__}: {error}") from None
    if isinstance(mapped, np.lib.npyio.NpzFile):
        mapped.close()
    if not isinstance(mapped, np.memmap) or mapped.dtype.kind not in NUMBERS:
        raise ValueError("it is not an .npy array of numbers")
    if mapped.offset + mapped.nbytes != size:
        raise ValueError("other bytes follow the array")
    return mapped


def load_arrays(path: Path, *names: str) -> list[Any]:
    """Read arrays of an .npz by name; one that may be absent, written "NAME?", is None if it is.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is damaged, lacks an array, or is compressed, which `numpy.savez` does not do and bombs do.
    """
    found = map_arrays(path, follow=False, largest=0)
    if absent := [name for name in names if name.removesuffix("?") not in found and not name.endswith("?")]:
        raise ValueError(f"it has no array {absent[0]!r}")
    if text := [name for name, array in found.items() if array.dtype.kind in TEXT]:
        raise ValueError(f"{text[0][:80]!r} is text, not numbers")
    return [np.array(found[name]) if (name := asked.removesuffix("?")) in found else None for asked in names]


def map_arrays(path: Path, *, follow: bool = True, largest: int = LARGEST) -> dict[str, NDArray[Any]]:
    """Return the arrays of an .npz by name, of numbers or text, read-only where they are stored uncompressed: mapped.

    Args:
        path: of the file.
        follow: whether it may be a symbolic link.
        largest: bytes of a compressed array.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is damaged, or an array holds Python objects, which are pickles, or is too large to unpack.
    """
    with open_regular(path, follow=follow) as file:
        try:
            with zipfile.ZipFile(file) as content:
                return {
                    member.filename.removesuffix(".npy"): _member(content, member, largest)
                    for member in content.infolist()
                }
        except (ValueError, MemoryError):
            raise
        except Exception as error:  # damaged zip files fail in many ways
            raise ValueError(f"it is no whole .npz file ({type(error).__name__}: {str(error)[:120]})") from None


def _member(content: zipfile.ZipFile, member: zipfile.ZipInfo, largest: int) -> NDArray[Any]:
    """Return an array of an open .npz, mapped unless it is compressed."""
    name = member.filename.removesuffix(".npy")[:80]
    with content.open(member) as stream:
        try:
            shape, fortran_order, dtype = HEADERS[np.lib.format.read_magic(stream)](stream)
        except (ValueError, KeyError) as error:
            raise ValueError(f"{name!r} is no .npy array ({str(error)[:80]})") from None
        if dtype.kind not in NUMBERS + TEXT or min(shape, default=0) < 0:
            what = "Python objects, a pickle, which is never read" if dtype.kind == "O" else str(dtype)[:40]
            raise ValueError(f"{name!r} holds {what}; save arrays of numbers or text")
        header, count = stream.tell(), int(np.prod(shape, dtype=object))
        if header + count * dtype.itemsize != member.file_size:
            raise ValueError(f"{name!r} is truncated: its header promises {shape} {dtype}")
        order: Literal["F", "C"] = "F" if fortran_order else "C"
        if member.compress_type == zipfile.ZIP_STORED and count:
            return _mapped(content.fp, member, header, shape, dtype, order)
        if count and member.file_size > largest:
            raise ValueError(f"{name!r} is compressed; save it with numpy.savez")
        return np.frombuffer(stream.read(count * dtype.itemsize), dtype).reshape(shape, order=order)


def _mapped(
    file: IO[bytes] | None, member: zipfile.ZipInfo, header: int, shape: Any, dtype: Any, order: Any
) -> NDArray[Any]:
    """Map a stored member; the length of what is before it is in its local header, not in the zip's directory."""
    assert file is not None
    file.seek(member.header_offset)
    name_size, extra_size = struct.unpack("<26xHH", file.read(30))
    start = member.header_offset + 30 + name_size + extra_size + header
    if start + member.compress_size - header > os.fstat(file.fileno()).st_size:
        raise ValueError(f"{member.filename[:80]!r} is truncated")
    return np.memmap(file, dtype, "r", start, shape, order)
