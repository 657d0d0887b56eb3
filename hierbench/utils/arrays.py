"""Reading .npy arrays of numbers, of which nothing is believed that the file does not bear out.

Prepared arrays (.npy) may be links to another disk: their digest says whether they are the right ones. Predictions
(.npz) may not.

numpy reserves the memory that a header asks for before it looks whether so many bytes follow; here the two are compared
first. Object arrays, which are pickles, are refused.
"""

from __future__ import annotations

import math
import os
import zipfile
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hierbench.utils.files import open_regular

HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
NUMBERS = "biuf"  # kinds of dtype


class _Header(NamedTuple):
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    order: Literal["C", "F"]


def load_array(path: Path) -> NDArray[Any]:
    """Read an .npy file into memory.

    Raises:
        OSError: the file can not be read.
        ValueError: it is not a whole .npy of numbers.
    """
    with open_regular(path, follow=True) as file:
        return _read(file, os.fstat(file.fileno()).st_size)


def map_array(path: Path) -> NDArray[Any]:
    """Map an .npy file into memory, read-only; errors as `load_array`."""
    with open_regular(path, follow=True) as file:
        header = _header(file, os.fstat(file.fileno()).st_size)
        mapped: NDArray[Any] = np.memmap(path, header.dtype, "r", file.tell(), header.shape, header.order)
        return mapped


def load_arrays(path: Path, *names: str) -> list[NDArray[Any]]:
    """Read arrays of an .npz by name.

    Raises:
        OSError: the file can not be read.
        ValueError: it is damaged, lacks an array, or is compressed, which `numpy.savez` does not do and bombs do.
    """
    with open_regular(path) as file:
        try:
            with zipfile.ZipFile(file) as content:
                return [_member(content, name) for name in names]
        except (ValueError, MemoryError):
            raise
        except KeyError:
            raise ValueError("an array is missing") from None
        except Exception as error:  # damaged zip files fail in many ways
            raise ValueError(f"{type(error).__name__}: {error}") from None


def _member(content: zipfile.ZipFile, name: str) -> NDArray[Any]:
    member = content.getinfo(f"{name}.npy")
    if member.compress_type != zipfile.ZIP_STORED or member.file_size != member.compress_size:
        raise ValueError(f"{name} is compressed")
    with content.open(member) as file:
        array = _read(file, member.file_size)
        if file.read(1):  # at the end zipfile compares the checksum
            raise ValueError(f"{name} is followed by other bytes")
    return array


def _header(file: IO[bytes], size: int) -> _Header:
    """Read the header of an .npy of `size` bytes and compare what it promises with what follows."""
    try:
        shape, fortran_order, dtype = HEADERS[np.lib.format.read_magic(file)](file)
    except Exception as error:  # a damaged header fails in many ways
        raise ValueError(f"it is no .npy array ({type(error).__name__})") from None
    if dtype.kind not in NUMBERS or any(length < 0 for length in shape):
        raise ValueError(f"it holds no numbers but {str(dtype)[:40]}")
    expected = math.prod(shape) * dtype.itemsize
    if expected != size - file.tell():
        raise ValueError(f"{size - file.tell():,} bytes follow the header, not {str(shape)[:80]} of {dtype}")
    return _Header(shape, dtype, "F" if fortran_order else "C")


def _read(file: IO[bytes], size: int) -> NDArray[Any]:
    header = _header(file, size)
    content = bytearray(file.read(size - file.tell()))  # may be written to, as torch wants it
    if len(content) != math.prod(header.shape) * header.dtype.itemsize:
        raise ValueError("it ends too early")
    return np.ndarray(header.shape, header.dtype, content, order=header.order)
