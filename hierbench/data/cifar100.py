"""CIFAR-100 through torchvision: the last 50 training images of each class are validation (FIDELITY row 23)."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from torchvision.datasets import CIFAR100
from torchvision.datasets.utils import check_integrity

from hierbench.data.source import CHUNK, Labels, Piece, Request, Source, shipped_paths, unpack
from hierbench.errors import UserError
from hierbench.files import file_digest

FOLDER = CIFAR100.base_folder
VAL_PER_CLASS = 50
# All that the official files refer to besides plain containers.
ALLOWED_GLOBALS = {
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("_codecs", "encode"),
}


class _Reader(CIFAR100):  # type: ignore[misc]  # torchvision has no types
    """torchvision's reader; checksums are compared by `open_source`, which only reports a difference."""

    meta: ClassVar = {**CIFAR100.meta, "md5": None}

    def _check_integrity(self) -> bool:
        return True


def open_source(request: Request) -> Source:
    """Read CIFAR-100.

    Args:
        request: `source` is the folder that holds `cifar-100-python`, or the archive; None downloads it.

    Raises:
        UserError: no data, damaged data, or files that hold more than arrays and lists.
    """
    root = _root(request.source, request.downloads)
    names = [entry[0] for entry in (*CIFAR100.train_list, *CIFAR100.test_list)] + [CIFAR100.meta["filename"]]
    for name in names:
        if not (root / FOLDER / name).is_file():
            raise UserError(f"no file {root / FOLDER / name}; --source takes the folder that holds {FOLDER}")
        _check_only_arrays(root / FOLDER / name)
    md5s = dict([*CIFAR100.train_list, *CIFAR100.test_list, (CIFAR100.meta["filename"], CIFAR100.meta["md5"])])
    changed = [name for name, md5 in md5s.items() if not check_integrity(root / FOLDER / name, md5)]
    try:
        train, test = _Reader(root, train=True), _Reader(root, train=False)
        train_labels, test_labels = (np.asarray(data.targets, dtype=np.int64) for data in (train, test))
    except Exception as error:  # whatever is not laid out as CIFAR-100 is
        raise UserError(f"{root / FOLDER} can not be read: {type(error).__name__}: {error}") from None
    paths = shipped_paths("cifar100")
    if list(train.classes) != list(paths):
        raise UserError(f"{root / FOLDER}: meta does not list the 100 classes of CIFAR-100")
    for images, labels in ((train.data, train_labels), (test.data, test_labels)):
        fits = images.dtype == np.uint8 and labels.ndim == 1 and images.shape == (len(labels), 32, 32, 3)
        if not fits or not len(labels) or not 0 <= labels.min() <= labels.max() < 100:
            raise UserError(f"{root / FOLDER}: images and labels do not fit: {images.shape}, {len(labels)} labels")
    is_val = _last_of_each_class(train_labels, VAL_PER_CLASS)
    pixels = {"train": train.data[~is_val], "val": train.data[is_val], "test": test.data}
    labels_of = {"train": train_labels[~is_val], "val": train_labels[is_val], "test": test_labels}
    remarks = [f"{', '.join(changed)} differ from the official CIFAR-100"] if changed else []
    checksums = {name: file_digest(root / FOLDER / name) for name in names}
    return Source(paths, labels_of, (32, 32), lambda: _pieces(pixels), checksums=checksums, remarks=remarks)


def _root(source: Path | None, downloads: Path) -> Path:
    if source is None:
        try:
            CIFAR100(downloads, download=True)
        except (OSError, RuntimeError) as error:
            raise UserError(
                f"CIFAR-100 could not be downloaded ({error}); get cifar-100-python.tar.gz elsewhere and run: "
                "hierbench data prepare cifar100 --source FILE"
            ) from None
        return downloads
    if source.is_dir():
        return source.parent if source.name == FOLDER else source
    return unpack(source, downloads)


def _last_of_each_class(labels: Labels, num: int) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Mark the last `num` examples of each class, at most half of them where an archive holds fewer."""
    marked = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        marked[rows[len(rows) - min(num, len(rows) // 2) :]] = True
    return marked


def _pieces(images: dict[str, Any]) -> Iterator[Piece]:
    for split, rows in images.items():
        for start in range(0, len(rows), CHUNK):
            chunk = rows[start : start + CHUNK].transpose(0, 3, 1, 2)
            yield Piece(split, start, partial(np.ascontiguousarray, chunk))


class _ArraysOnly(pickle.Unpickler):
    """Unpickles what CIFAR-100's files hold; a pickle can name any function, and this one calls no other."""

    def find_class(self, module: str, name: str) -> Any:
        """Return an array constructor, or refuse."""
        if (module, name) in ALLOWED_GLOBALS:
            return super().find_class(module, name)
        raise UserError(f"refers to {module}.{name}: it is no CIFAR-100 file and is not read")


def _check_only_arrays(path: Path) -> None:
    """Unpickle a file once without trusting it, before torchvision does so with trust."""
    try:
        with path.open("rb") as file:
            _ArraysOnly(file, encoding="latin1").load()
    except UserError as error:
        raise UserError(f"{path} {error}") from None
    except Exception as error:  # damaged pickles fail in many ways
        raise UserError(f"{path} is truncated or damaged ({type(error).__name__}: {error})") from None
