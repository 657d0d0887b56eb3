"""The tree that published records are on: one that the project ships, or the file beside the records.

The file needs no trust: the digest of the tree is part of every run's spec, and of its id.
"""

import os
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path

from hierbench.config.spec import DatasetSpec
from hierbench.hierarchy.label_tree import Distance, Hierarchy
from hierbench.hierarchy.readers import shipped_names, shipped_paths
from hierbench.utils.files import read_json, write_json

TREE_FILE = "tree.json"


def shipped_tree(data: DatasetSpec) -> Hierarchy | None:
    """Return the tree of some data if the project ships it, perhaps for a dataset of another name."""
    return _with_digest(data.hierarchy, data.distance, data.name)


@lru_cache(maxsize=16)
def _with_digest(digest: str, distance: Distance, name: str) -> Hierarchy | None:
    for other in sorted(shipped_names(), key=lambda other: not name.startswith(other)):
        tree = Hierarchy.from_paths(shipped_paths(other), distance)
        if tree.digest() == digest:
            return tree
    return None


def write_tree(folder: Path, paths: Iterable[Sequence[str]]) -> None:
    """Write the tree of a folder of records; a path is (coarsest, ..., class), in the order of the classes."""
    write_json(folder / TREE_FILE, {"schema": 1, "paths": [list(path) for path in paths]})


def read_paths(folder: Path, data: DatasetSpec) -> list[tuple[str, ...]] | None:
    """Return the paths of the tree beside records; None if it is not the tree of their data, or is damaged."""
    if not os.path.lexists(folder / TREE_FILE):
        return None
    try:
        paths = [tuple(path) for path in read_json(folder / TREE_FILE)["paths"]]
        tree = Hierarchy.from_paths({path[-1]: path for path in paths}, data.distance)
    except (OSError, ValueError, LookupError, TypeError):
        return None
    return paths if tree.digest() == data.hierarchy else None


def tree_beside(folder: Path, data: DatasetSpec) -> Hierarchy | None:
    """Return the tree beside records if it is the tree of their data."""
    paths = read_paths(folder, data)
    return None if paths is None else Hierarchy.from_paths({path[-1]: path for path in paths}, data.distance)
