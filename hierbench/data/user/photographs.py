"""The images of a user's dataset as they are listed, wherever they lie."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path

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
    """Return the photographs with a share of each class's training images, in the order of SHA-256, as validation."""
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
