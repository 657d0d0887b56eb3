"""CIFAR-100: the last 50 training images of each class are validation (docs/protocols.md, row 23).

Its files are pickles, which can run any code, and the user's copy may not be the official one; so they are read by an
unpickler that builds only arrays and plain values.
"""

import io
import pickle
import pickletools
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from torchvision.datasets import CIFAR100
from torchvision.datasets.utils import check_integrity

from hierbench.data.image import Images
from hierbench.data.source import CHUNK, Labels, Piece, Request, Source, root_of, shipped_paths
from hierbench.utils.download import Remote
from hierbench.utils.errors import UserError
from hierbench.utils.files import file_digest, read_bytes

FOLDER = CIFAR100.base_folder
ARCHIVE = Remote("CIFAR-100", CIFAR100.url, sha256="85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7")
MD5S = dict([*CIFAR100.train_list, *CIFAR100.test_list, (CIFAR100.meta["filename"], CIFAR100.meta["md5"])])
VAL_PER_CLASS = 50
LARGEST = 1 << 28  # bytes of a file; the official training file has 155 MB
ALLOWED_GLOBALS = {  # all that the official files refer to besides plain containers
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("_codecs", "encode"),
}


def open_source(request: Request) -> Source:
    """Read CIFAR-100 from the folder that holds `cifar-100-python`, or from its archive; None downloads that."""
    root = root_of(request, FOLDER, ARCHIVE, "cifar100", lambda downloads: not _changed(downloads))
    for name in MD5S:
        if not (root / FOLDER / name).is_file():
            raise UserError(f"no file {root / FOLDER / name}; --source takes the folder that holds {FOLDER}")
    images, labels = read_split(root / FOLDER / "train")
    test_images, test_labels = read_split(root / FOLDER / "test")
    paths = shipped_paths("cifar100")
    if read_pickle(root / FOLDER / "meta").get("fine_label_names") != list(paths):
        raise UserError(f"{root / FOLDER}: meta does not list the 100 classes of CIFAR-100")
    changed = _changed(root)
    is_val = _last_of_each_class(labels, VAL_PER_CLASS)
    pixels = {"train": images[~is_val], "val": images[is_val], "test": test_images}
    labels_of = {"train": labels[~is_val], "val": labels[is_val], "test": test_labels}

    def pieces() -> Iterator[Piece]:
        for split, rows in pixels.items():
            for start in range(0, len(rows), CHUNK):
                yield Piece(split, start, partial(np.asarray, rows[start : start + CHUNK]))

    remarks = [f"{', '.join(changed)} differ from the official CIFAR-100"] if changed else []
    checksums = {name: file_digest(root / FOLDER / name, follow=True) for name in MD5S}
    return Source(paths, labels_of, (32, 32), pieces, checksums=checksums, remarks=remarks)


def _changed(root: Path) -> list[str]:
    """Return the names of the files that are not the official ones."""
    return [name for name, md5 in MD5S.items() if not check_integrity(root / FOLDER / name, md5)]


def _last_of_each_class(labels: Labels, num: int) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Mark the last `num` examples of each class, at most half of them where an archive holds fewer."""
    marked = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        marked[rows[len(rows) - min(num, len(rows) // 2) :]] = True
    return marked


def read_split(path: Path) -> tuple[Images, Labels]:
    """Return images [N, 3, 32, 32] and labels [N]."""
    content = read_pickle(path)
    pixels, labels = content.get("data"), content.get("fine_labels")
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or not isinstance(labels, list):
        raise UserError(f"{path} has no array of images and list of labels: it is not a CIFAR-100 file")
    if not labels or pixels.shape != (len(labels), 3 * 32 * 32):
        raise UserError(f"{path}: images and labels do not fit: {pixels.shape}, {len(labels)} labels")
    if not all(type(label) is int and 0 <= label < 100 for label in labels):
        raise UserError(f"{path} has a label that is not between 0 and 99")
    return pixels.reshape(-1, 3, 32, 32), np.array(labels, dtype=np.int64)


class _ArraysOnly(pickle.Unpickler):
    """Unpickles what CIFAR-100's files hold, and calls no function that a pickle may name."""

    def find_class(self, module: str, name: str) -> Any:
        """Return an array constructor, or refuse."""
        if (module, name) in ALLOWED_GLOBALS:
            return super().find_class(module, name)
        raise UserError(f"refers to {module}.{name}: it is not a CIFAR-100 file and is not read")


def read_pickle(path: Path) -> dict[Any, Any]:
    """Return the dictionary that a file holds."""
    content = read_bytes(path, LARGEST, follow=True)
    try:
        _check_memo(content)
        found = _ArraysOnly(io.BytesIO(content), encoding="latin1").load()
    except Exception as error:  # damaged pickles fail in many ways
        damage = f"is truncated or damaged ({type(error).__name__}: {error})"
        raise UserError(f"{path} {error if isinstance(error, UserError) else damage}") from None
    if not isinstance(found, dict):
        raise UserError(f"{path} holds a {type(found).__name__}: it is not a CIFAR-100 file")
    return found


def _check_memo(content: bytes) -> None:
    """Raise unless a pickle numbers its memo one by one; otherwise it can reserve 4 billion places."""
    for number, (opcode, argument, _) in enumerate(pickletools.genops(content)):
        if opcode.name in ("PUT", "BINPUT", "LONG_BINPUT") and not (isinstance(argument, int) and argument <= number):
            raise ValueError("it asks for more memory than it needs")
