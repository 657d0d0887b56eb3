"""The images of a user's dataset as they are listed, wherever they lie."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from hierbench.utils.errors import UserError

HUB = "hf:"  # before a name on the hub of Hugging Face


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

    @property
    def labels(self) -> list[str]:
        """The classes in sorted order."""
        return sorted({photograph.label for photograph in self.photographs})

    @property
    def remarks(self) -> list[str]:
        """A line for each kind of file that was ignored or left out."""
        kinds = ", ".join(f"{kind} ({num:,})" for kind, num in self.ignored.most_common(5))
        remarks = [f"{self.ignored.total():,} files that are not images are ignored: {kinds}"] * bool(self.ignored)
        return remarks + [f"the link {link} is left out: it leads to a folder above it" for link in self.upward]
