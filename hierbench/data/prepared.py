"""Prepared datasets: every image decoded, resized and stored once as uint8, with labels, tree and digest beside it.

A prepared dataset is a folder `<data-dir>/prepared/<name>/` with `meta.json` and, per split, `<split>-images.npy`
([N, 3, H, W] uint8) and `<split>-labels.npy` ([N] int64). It is built in a folder of another name and renamed when
whole, so that a killed preparation is never taken for a finished one.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from hierbench.data.source import Images, Labels, Source
from hierbench.errors import UserError, unknown_name
from hierbench.files import process_is_gone, read_json, sync_folder, write_json
from hierbench.hierarchy import Distance, Hierarchy

SPLITS = ("train", "val", "test")
MODULES = {
    "shapes": "hierbench.data.shapes",
    "cifar100": "hierbench.data.cifar100",
    "fgvc": "hierbench.data.fgvc",
    "tiny-imagenet": "hierbench.data.tiny_imagenet",
}
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Prepared:
    """A prepared dataset on disk."""

    folder: Path
    meta: dict[str, Any]

    @property
    def digest(self) -> str:
        """SHA-256 over all images, labels and class names."""
        return str(self.meta["digest"])

    @cached_property
    def _hierarchies(self) -> dict[Distance, Hierarchy]:
        return {}

    def hierarchy(self, distance: Distance) -> Hierarchy:
        """Return the dataset's tree over its classes in target order."""
        if distance not in self._hierarchies:
            paths = {path[-1]: tuple(path) for path in self.meta["paths"]}
            self._hierarchies[distance] = Hierarchy.from_paths(paths, distance)
        return self._hierarchies[distance]

    def size(self, split: str) -> int:
        """Return the number of examples of a split."""
        return int(self.meta["splits"][split])

    def arrays(self, split: str) -> tuple[Images, Labels]:
        """Return the memory-mapped images [N, 3, H, W] uint8 and the labels [N] int64 of a split."""
        # Copy-on-write: PyTorch wants writable memory, and nothing here writes.
        images = np.load(self.folder / f"{split}-images.npy", mmap_mode="c")
        return images, np.load(self.folder / f"{split}-labels.npy")


def folder_of(name: str, data_dir: Path) -> Path:
    """Return where a dataset's prepared arrays lie."""
    return data_dir / "prepared" / name


def find(name: str, data_dir: Path) -> Prepared | None:
    """Return the prepared dataset, or None where there is none."""
    folder = folder_of(name, data_dir)
    try:
        meta = read_json(folder / "meta.json")
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise UserError(f"{folder} is damaged ({error}); remove it and prepare {name} again") from None
    try:
        prepared = Prepared(folder, meta)
        num_classes = prepared.hierarchy("height").num_classes
        str(meta["digest"]), str(meta["remark"])
        for split in SPLITS:
            images, labels = prepared.arrays(split)
            expected = (meta["splits"][split], 3, *meta["image_size"])
            if images.shape != expected or images.dtype != np.uint8 or labels.shape != expected[:1]:
                raise ValueError(f"{split} holds {images.shape} {images.dtype}, not {expected} uint8")
            if labels.dtype != np.int64 or not 0 <= labels.min() <= labels.max() < num_classes:
                raise ValueError(f"the labels of {split} are not those of {num_classes} classes")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, EOFError) as error:
        raise UserError(f"{folder} is damaged ({error}); remove it and prepare {name} again") from None
    return prepared


def prepare(
    name: str, data_dir: Path, source: Path | None = None, progress: Progress | None = None, *, force: bool = False
) -> Prepared:
    """Prepare a dataset, or return what is there.

    Args:
        name: of the dataset.
        data_dir: prepared arrays go to `prepared/` below it, downloads to `downloads/`.
        source: the user's own copy; None downloads where the licence allows.
        progress: called with (images done, images in all).
        force: prepare again although the dataset is there.

    Raises:
        UserError: nothing to read, or something in it is broken; nothing half-prepared is left.
    """
    if name not in MODULES:
        raise unknown_name("dataset", name, MODULES)
    if not force and source is None and (there := find(name, data_dir)) is not None:
        return there
    target = folder_of(name, data_dir)
    partial = target.with_name(f".{name}.partial-{os.getpid()}")
    try:
        _remove_abandoned(target.parent)
        opened = import_module(MODULES[name]).open_source(source, data_dir / "downloads")
        target.parent.mkdir(parents=True, exist_ok=True)
        _check_space(opened, target.parent)
        partial.mkdir()
        meta = _write(name, opened, partial, progress or (lambda done, total: None))
        write_json(partial / "meta.json", meta)
        old = target.with_name(f".{name}.old-{os.getpid()}")
        if target.exists():
            target.rename(old)
        partial.rename(target)
        sync_folder(target.parent)
        shutil.rmtree(old, ignore_errors=True)
    except OSError as error:
        if isinstance(error, FileNotFoundError | NotADirectoryError):
            raise UserError(f"preparing {name}: {error.filename or error} does not exist or is no folder") from None
        reason = "the disk is full" if error.errno == errno.ENOSPC else str(error)
        raise UserError(f"preparing {name} in {target.parent}: {reason}; nothing was kept") from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return Prepared(target, meta)


def verify(name: str, data_dir: Path) -> Prepared:
    """Read a prepared dataset whole and compare it with its digest."""
    there = find(name, data_dir)
    if there is None:
        raise UserError(f"{name} is not prepared in {data_dir}; run: hierbench data prepare {name}")
    digest = _start_digest(there.meta["paths"])
    for split in SPLITS:
        images, labels = there.arrays(split)
        digest.update(labels.tobytes())
        for start in range(0, len(images), 1024):
            digest.update(images[start : start + 1024].tobytes())
    if digest.hexdigest() != there.digest:
        raise UserError(f"{there.folder} does not match its digest; remove it and prepare {name} again")
    return there


def _write(name: str, source: Source, folder: Path, progress: Progress) -> dict[str, Any]:
    paths = [list(path) for path in source.paths.values()]
    Hierarchy.from_paths(source.paths)  # a broken tree must not be found out hours later
    digest = _start_digest(paths)
    total, done = sum(len(split.labels) for split in source.splits.values()), 0
    for split in SPLITS:
        labels = np.ascontiguousarray(source.splits[split].labels, dtype=np.int64)
        if not len(labels):
            raise UserError(f"{name} has no {split} images")
        with (folder / f"{split}-labels.npy").open("wb") as file:
            np.save(file, labels)
        digest.update(labels.tobytes())
        shape = (len(labels), 3, *source.image_size)
        with (folder / f"{split}-images.npy").open("wb") as file:
            header = {"descr": "|u1", "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(file, header)
            for images in source.splits[split].batches():
                assert images.dtype == np.uint8 and images.shape[1:] == shape[1:], (images.dtype, images.shape)
                block = images.tobytes()
                file.write(block)
                digest.update(block)
                done += len(images)
                progress(done, total)
            file.flush()
            os.fsync(file.fileno())
    return {
        "schema": 1,
        "dataset": name,
        "paths": paths,
        "splits": {split: len(source.splits[split].labels) for split in SPLITS},
        "image_size": list(source.image_size),
        "checksums": source.checksums,
        "remark": source.remark,
        "digest": digest.hexdigest(),
    }


def _start_digest(paths: list[list[str]]) -> Any:
    return sha256(repr([list(path) for path in paths]).encode())


def _check_space(source: Source, folder: Path) -> None:
    height, width = source.image_size
    needed = sum(len(split.labels) for split in source.splits.values()) * 3 * height * width
    if shutil.disk_usage(folder).free < needed:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _remove_abandoned(folder: Path) -> None:
    """Remove what killed preparations left: folders whose process is gone."""
    for left in [*folder.glob(".*.partial-*"), *folder.glob(".*.old-*")]:
        if process_is_gone(left.name.rpartition("-")[2]):
            shutil.rmtree(left, ignore_errors=True)
