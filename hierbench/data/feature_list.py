"""The caches of features below a data folder: what is there, what can still be used, and removing the rest."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from hierbench.data.features import MADE, VERSION
from hierbench.data.prepared import find
from hierbench.data.writer import SPLITS
from hierbench.utils.errors import UserError
from hierbench.utils.files import read_json_object, remove_made

State = Literal["usable", "stale", "damaged", "unfinished", "being extracted", "waiting for its dataset"]
KEPT: tuple[State, ...] = ("usable", "being extracted", "waiting for its dataset")


@dataclass(frozen=True)
class Cache:
    """A cache of features on disk.

    Attributes:
        folder: of its files.
        dataset: the name of the prepared dataset's folder.
        content: what the features depend on, {} where that cannot be read.
        bytes: on the disk.
        state: "stale" if the dataset or the code has changed since, so that no job will use it; "unfinished" after a
            kill: the next extraction goes on from it; "waiting for its dataset" where this is not prepared.
    """

    folder: Path
    dataset: str
    content: dict[str, Any]
    bytes: int
    state: State

    @property
    def what(self) -> str:
        """What of which network they are."""
        if not self.content:
            return self.folder.name
        weights = str(self.content.get("weights"))
        weights = weights if weights.startswith("random") else weights[:12]
        views = self.content.get("views")
        return f"{self.content.get('backbone')}, weights {weights}, {self.content.get('pool')}-pooled, views {views}"


def caches(data_dir: Path) -> list[Cache]:
    """Return the caches of all prepared datasets, by name."""
    found = []
    for folder in sorted((data_dir / "prepared").glob("*/features/*")):
        with suppress(FileNotFoundError):  # an extraction that ends gives its folder another name
            if folder.is_dir() and not folder.is_symlink():
                found.append(_cache(folder, data_dir))
    return found


def prune(data_dir: Path) -> list[Cache]:
    """Remove caches that are stale, damaged or unfinished, and return them; what is or may be needed stays."""
    removed = []
    for cache in caches(data_dir):
        if cache.state in KEPT:
            continue
        with suppress(FileNotFoundError), _lock(cache.folder) as free:  # its extraction may have ended by now
            if free:
                remove_made(cache.folder, MADE)
                removed.append(cache)
        with suppress(OSError):  # other caches are in it
            cache.folder.parent.rmdir()
    return removed


def _cache(folder: Path, data_dir: Path) -> Cache:
    dataset, content = folder.parents[1].name, dict[str, Any]()
    size = sum(path.lstat().st_blocks * 512 for path in folder.iterdir())
    state: State
    if folder.name.startswith("."):
        with _lock(folder) as free:
            return Cache(folder, dataset, content, size, "unfinished" if free else "being extracted")
    try:
        meta = read_json_object(folder / "meta.json")
        content, files = dict(meta["content"]), meta["files"]
        sizes = {split: (folder / f"{split}-features.npy").stat().st_size for split in SPLITS}
        if any(files[split]["bytes"] != num for split, num in sizes.items()):
            raise ValueError
        prepared = find(dataset, data_dir)
        known = prepared is not None and content["dataset"] == prepared.digest and content["version"] == VERSION
        state = "usable" if known else "waiting for its dataset" if prepared is None else "stale"
    except UserError:  # the dataset is damaged: it will be prepared again
        state = "stale"
    except (OSError, ValueError, LookupError, TypeError):
        state = "damaged"
    return Cache(folder, dataset, content, size, state)


@contextmanager
def _lock(folder: Path) -> Iterator[bool]:
    """Lock a folder as `hierbench.data.prepare.claimed` does; yield whether no other process has it."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield True
    except BlockingIOError:
        yield False
    finally:
        os.close(descriptor)
