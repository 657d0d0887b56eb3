"""What a dataset module hands over for preparing: classes, their tree, and per split the labels and the images."""

from __future__ import annotations

import csv
import os
import shutil
import tarfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import resources
from itertools import islice
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from hierbench.errors import UserError
from hierbench.files import process_is_gone

Images = NDArray[np.uint8]
Labels = NDArray[np.int64]
Item = TypeVar("Item")
CHUNK = 256  # images decoded between two writes


@dataclass(frozen=True)
class Split:
    """Labels [N] and a function that yields the images in the same order as uint8 arrays [n, 3, H, W]."""

    labels: Labels
    batches: Callable[[], Iterator[Images]]


@dataclass(frozen=True)
class Source:
    """A dataset ready to be prepared.

    Attributes:
        paths: {class: (coarsest, ..., class)}; its order is the target order.
        splits: train, val and test.
        image_size: (H, W) of every image.
        checksums: what was read, by name; kept beside the prepared arrays.
        remark: said to the user and kept, e.g. that the archive is not the official one.
    """

    paths: dict[str, tuple[str, ...]]
    splits: dict[str, Split]
    image_size: tuple[int, int]
    checksums: dict[str, str] = field(default_factory=dict)
    remark: str = ""


def decoded(items: Sequence[Item], load: Callable[[Item], Images]) -> Callable[[], Iterator[Images]]:
    """Return a function that loads the items on all cores, in order, a chunk at a time.

    Args:
        items: one per image.
        load: maps an item to its image, uint8 [3, H, W]; runs in threads, which decoding leaves free to overlap.
    """

    def batches() -> Iterator[Images]:
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for chunk in _chunks(items):
                yield np.stack(list(pool.map(load, chunk)))

    return batches


def _chunks(items: Iterable[Item]) -> Iterator[list[Item]]:
    iterator = iter(items)
    while chunk := list(islice(iterator, CHUNK)):
        yield chunk


def shipped_paths(name: str) -> dict[str, tuple[str, ...]]:
    """Return {class: path} of a tree in benchmarks/hierarchies, in the file's order."""
    file = resources.files("hierbench.benchmarks").joinpath(f"hierarchies/{name}.csv")
    rows = list(csv.reader(file.read_text(encoding="utf-8").splitlines()))[1:]
    paths = [tuple(cell for cell in row if cell) for row in rows]
    return {path[-1]: path for path in paths}


def download(url: str, md5: str, folder: Path, dataset: str, what: str) -> Path:
    """Download a file with progress and checksum, or return the one that is there.

    Raises:
        UserError: saying what to put where.
    """
    from torchvision.datasets.utils import check_integrity, download_url

    path = folder / url.rpartition("/")[2]
    if path.exists() and check_integrity(path, md5):
        return path
    try:
        download_url(url, folder, md5=md5)
    except (OSError, RuntimeError) as error:
        path.unlink(missing_ok=True)
        raise UserError(
            f"{what} could not be downloaded from {url} ({error}); get it elsewhere and run: "
            f"hierbench data prepare {dataset} --source FILE"
        ) from None
    return path


@contextmanager
def staged(folder: Path) -> Iterator[Path]:
    """Yield an empty folder; what is in it at the end moves to `folder`, and after an error nothing does."""
    folder.mkdir(parents=True, exist_ok=True)
    for left in folder.glob(".staged.partial-*"):
        if process_is_gone(left.name.rpartition("-")[2]):
            shutil.rmtree(left, ignore_errors=True)
    staging = folder / f".staged.partial-{os.getpid()}"
    try:
        staging.mkdir()
        yield staging
        for entry in staging.iterdir():
            target = folder / entry.name
            if target.is_dir():
                shutil.rmtree(target)
            entry.rename(target)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def unpack(archive: Path, folder: Path) -> Path:
    """Unpack a tar archive into `folder` and return it; members that would leave it are refused."""
    if not archive.is_file():
        raise UserError(f"no archive {archive}")
    try:
        with staged(folder) as staging, tarfile.open(archive) as tar:
            tar.extractall(staging, filter="data")
            while tar.fileobj is not None and tar.fileobj.read(1 << 20):
                pass  # to the end of the stream, where its checksum is
    except (tarfile.TarError, EOFError, ValueError, zlib.error) as error:
        raise UserError(f"{archive.name} is no whole tar archive ({error})") from None
    return folder
