"""Reading .npy arrays of numbers, none of which promises more than its file holds; object arrays, pickles, are refused.

Prepared arrays (.npy) may be links to another disk: their digest says whether they are the right ones. Predictions
(.npz) may not.
"""

import os
import zipfile
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hierbench.utils.files import open_regular

HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
NUMBERS = "biuf"  # kinds of dtype


def load_array(path: Path) -> NDArray[Any]:
    """Read an .npy file into memory.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is not a whole .npy of numbers.
    """
    with open_regular(path, follow=True) as file:
        return _array(file.read())


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
    if not isinstance(mapped, np.memmap) or mapped.dtype.kind not in NUMBERS:
        raise ValueError("it is not an .npy array of numbers")
    if mapped.offset + mapped.nbytes != size:
        raise ValueError("other bytes follow the array")
    return mapped


def load_arrays(path: Path, *names: str) -> list[NDArray[Any]]:
    """Read arrays of an .npz by name.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is damaged, lacks an array, or is compressed, which `numpy.savez` does not do and bombs do.
    """
    with open_regular(path) as file:
        try:
            with zipfile.ZipFile(file) as content:
                members = [content.getinfo(f"{name}.npy") for name in names]
                for member in members:
                    if member.compress_type != zipfile.ZIP_STORED or member.file_size != member.compress_size:
                        raise ValueError(f"{member.filename} is compressed")
                return [_array(content.read(member)) for member in members]
        except (ValueError, MemoryError):
            raise
        except Exception as error:  # damaged zip files fail in many ways
            raise ValueError(f"{type(error).__name__}: {error}") from None


def _array(content: bytes) -> NDArray[Any]:
    """Return the array in an .npy's bytes; numpy itself would allocate what the header asks for."""
    file = BytesIO(content)
    try:
        shape, fortran_order, dtype = HEADERS[np.lib.format.read_magic(file)](file)
        if dtype.kind not in NUMBERS or min(shape, default=0) < 0:
            raise ValueError(f"{str(shape)[:40]} of {str(dtype)[:40]}")
        values = np.frombuffer(
            bytearray(memoryview(content)[file.tell() :]), dtype
        )  # may be written to, as torch wants it
        return values.reshape(shape, order="F" if fortran_order else "C")
    except Exception as error:  # a damaged header fails in many ways
        raise ValueError(f"it is not an .npy array ({type(error).__name__}: {str(error)[:80]})") from None
