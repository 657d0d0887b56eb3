"""The images of a user's dataset as they are listed, wherever they lie."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hierbench.data.group_splits import draw_splits
from hierbench.data.writer import SPLITS
from hierbench.utils.errors import UserError

HUB = "hf:"  # before a name on the hub of Hugging Face
SPLIT_OF = {"training": "train", "valid": "val", "validation": "val", "dev": "val"} | {name: name for name in SPLITS}
VAL = 0.1  # of each class's training images, where a dataset has test images and none for validation


class GoneError(UserError):
    """The images, or the tree, are not where the file says; data prepared from them can still be used."""


@dataclass(frozen=True)
class Photograph:
    """An image file: its path relative to the root, its class, its split if the user chose it, size and time."""

    name: str
    label: str
    split: str
    size: int  # bytes
    time: int  # of the last change, ns
    group: str = ""  # of the thing that it shows: a specimen, a site, a night


@dataclass(frozen=True)
class Listing:
    """All images of a dataset, sorted by name, the number of other files of each kind, and links not followed.

    `read` returns the bytes of an image that is no file below the root.
    """

    root: Path
    photographs: list[Photograph] = field(default_factory=list)
    ignored: Counter[str] = field(default_factory=Counter)
    upward: dict[str, None] = field(default_factory=dict)  # paths of links to a folder above
    read: Callable[[Photograph], bytes] | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def labels(self) -> list[str]:
        """The classes in sorted order."""
        return sorted({photograph.label for photograph in self.photographs})

    @property
    def remarks(self) -> list[str]:
        """A line for each kind of file that was ignored or left out."""
        kinds = ", ".join(f"{kind} ({num:,})" for kind, num in self.ignored.most_common(5))
        remarks = [f"{self.ignored.total():,} files that are not images are ignored: {kinds}"] * bool(self.ignored)
        remarks += self.notes
        return remarks + [f"the link {link} is left out: it leads to a folder above it" for link in self.upward]


def find_split(name: str) -> str:
    """Return the split that a name in use means, in any case: train, val or test; "" for another name."""
    return SPLIT_OF.get(name.casefold(), "")


def with_validation(photographs: list[Photograph]) -> list[Photograph]:
    """Return the photographs with a share of each class's training images as validation, in the order of SHA-256.

    Where they have groups, whole groups are drawn.
    """
    if any(photograph.group for photograph in photographs):
        fixed = [photograph.split for photograph in photographs]
        targets, groups = number_groups(photographs, sorted({photograph.label for photograph in photographs}))
        splits = draw_splits(targets, groups, fixed, 0, {"val": VAL})  # "": of a group with test images, too
        return [replace(image, split=split or image.split) for image, split in zip(photographs, splits, strict=True)]
    names: dict[str, list[str]] = {}
    for photograph in sorted(
        photographs, key=lambda photograph: sha256(photograph.name.encode(errors="replace")).digest()
    ):
        if photograph.split == "train":
            names.setdefault(photograph.label, []).append(photograph.name)
    drawn = {
        name
        for in_order in names.values()
        for name in in_order[: max(int(VAL * len(in_order) + 0.5), len(in_order) > 1)]
    }
    return [replace(photograph, split="val") if photograph.name in drawn else photograph for photograph in photographs]


def number_groups(
    photographs: Sequence[Photograph], classes: Sequence[str]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return [N] the class and [N] the group of each image as numbers; an image without a group is one of its own."""
    index = {label: i for i, label in enumerate(classes)}
    names = [(image.group and f"group {image.group}") or image.name for image in photographs]
    return np.array([index[image.label] for image in photographs]), np.unique(names, return_inverse=True)[1]
