"""Prepared datasets: every image decoded, resized and stored once as uint8, with labels, tree and digest beside it.

A prepared dataset is a folder `<data-dir>/prepared/<name>/` with `meta.json` and, per split, `<split>-images.npy`
([N, 3, H, W] uint8) and `<split>-labels.npy` ([N] int64). It is built in a folder of another name and renamed when
whole, so that a killed preparation is never taken for a finished one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from hierbench.arrays import load_array, map_array
from hierbench.data.image import Images
from hierbench.data.source import Labels
from hierbench.data.writer import SPLITS
from hierbench.errors import UserError
from hierbench.files import read_json_object
from hierbench.hierarchy import Distance, Hierarchy


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
        # Read-only: a private writable mapping would be charged against the memory there is.
        return map_array(self.folder / f"{split}-images.npy"), load_array(self.folder / f"{split}-labels.npy")


def variant_name(dataset: str, jpeg_quality: int = 0) -> str:
    """Return the name of a dataset's prepared form: its own, or one that says how the images were re-saved."""
    return f"{dataset}-jpeg{jpeg_quality}" if jpeg_quality else dataset


def folder_of(name: str, data_dir: Path) -> Path:
    """Return where a dataset's prepared arrays lie."""
    return data_dir / "prepared" / name


def find(name: str, data_dir: Path) -> Prepared | None:
    """Return the prepared dataset, or None where there is none."""
    folder = folder_of(name, data_dir)
    try:
        meta = read_json_object(folder / "meta.json")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UserError(f"{folder} can not be read ({error})") from None
    except ValueError as error:
        raise UserError(f"{folder} is damaged ({error}); remove it and prepare {name} again") from None
    try:
        prepared = Prepared(folder, meta)
        num_classes = prepared.hierarchy("height").num_classes
        if not all(isinstance(text, str) for text in (meta["digest"], meta["remark"], meta.get("notice", ""))):
            raise ValueError("what it says of itself is no text")
        for split in SPLITS:
            images, labels = prepared.arrays(split)
            expected = (meta["splits"][split], 3, *meta["image_size"])
            if images.shape != expected or images.dtype != np.uint8 or labels.shape != expected[:1]:
                raise ValueError(f"{split} holds {images.shape} {images.dtype}, not {expected} uint8")
            if labels.dtype != np.int64 or not 0 <= labels.min() <= labels.max() < num_classes:
                raise ValueError(f"the labels of {split} are not those of {num_classes} classes")
    except (FileNotFoundError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise UserError(f"{folder} is damaged ({error}); remove it and prepare {name} again") from None
    except OSError as error:  # no permission, no memory: nothing that preparing again would mend
        raise UserError(f"{folder} can not be read ({error})") from None
    return prepared


def verify(name: str, data_dir: Path) -> Prepared:
    """Read a prepared dataset whole and compare it with its digest."""
    there = find(name, data_dir)
    if there is None:
        raise UserError(f"{name} is not prepared in {data_dir}; run: hierbench data prepare {name}")
    if digest_of(there.folder, there.meta["paths"]) != there.digest:
        raise UserError(f"{there.folder} does not match its digest; remove it and prepare {name} again")
    return there


def digest_of(folder: Path, paths: list[list[str]], files: dict[str, Path] | None = None) -> str:
    """Return the SHA-256 over the classes' paths and, per split, all labels and all images.

    Args:
        folder: of the prepared dataset.
        paths: of its classes.
        files: {split: file of its images} where they do not have their final names yet.
    """
    digest = sha256(repr([list(path) for path in paths]).encode())
    for split in SPLITS:
        digest.update(load_array(folder / f"{split}-labels.npy").tobytes())
        images = map_array(files[split] if files else folder / f"{split}-images.npy")
        for start in range(0, len(images), 256):
            digest.update(images[start : start + 256].tobytes())
    return digest.hexdigest()
