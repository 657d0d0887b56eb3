"""The label tree: leaf classes, their levels and the hierarchical distance between any two of them.

Shapes: K classes (leaves), L levels (root excluded, coarsest first), height = edges on the longest root-to-leaf path.
"""

from __future__ import annotations

import csv
import hashlib
import json
import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from hierbench.hierarchy.readers import DEEPEST, MOST_CLASSES, edges_from_lines, named_edge, paths_from_csv
from hierbench.utils.files import read_text

Distance = Literal["height", "depth"]
IntArray = NDArray[np.int64]


class _Node(NamedTuple):
    """A node read from paths: a name that follows itself on a path (a family of one variant) is a node each time."""

    name: str
    repeat: int


_ROOT = _Node("the root above all paths", 0)


@dataclass(frozen=True, eq=False)
class Hierarchy:
    """A tree over K leaf classes, read once and then only looked up.

    Attributes:
        classes: leaf names; the position is the target index.
        height: d_max, the edges on the longest root-to-leaf path.
        distances: [K, K] int. "height": height of the lowest common ancestor (LCA); "depth": height - depth(LCA),
            zero on the diagonal. The two agree where all leaves have the same depth.
        level_sizes: nodes per level, coarsest first, root excluded, finest = K.
        level_targets: [K, L] int, node index of each class at each level. A leaf above the deepest level is repeated
            downwards. Coarse nodes are numbered in the (natural) order of their names, finest nodes are the classes.
        parents: parents[l][n] is the index at level l of the parent of node n at level l + 1; L - 1 arrays.
        node_distances: node_distances[l][n] is the distance of two classes whose LCA is node n of level l, zero for
            a leaf and its repetitions; L arrays.
    """

    classes: tuple[str, ...]
    height: int
    distances: IntArray
    level_sizes: tuple[int, ...]
    level_targets: IntArray
    parents: tuple[IntArray, ...]
    node_distances: tuple[IntArray, ...]
    distance: Distance

    @property
    def num_classes(self) -> int:
        """K."""
        return len(self.classes)

    @property
    def num_levels(self) -> int:
        """L, equal to the height."""
        return len(self.level_sizes)

    @classmethod
    def from_edges(
        cls,
        edges: Iterable[tuple[str, str]],
        classes: Sequence[str] | None = None,
        distance: Distance = "height",
    ) -> Hierarchy:
        """Build the tree from (parent, child) pairs.

        Args:
            edges: (parent, child) names, in any order.
            classes: all leaves, in target order; by default the leaves in sorted order.
            distance: "height" or "depth", see `distances`.

        Raises:
            ValueError: naming the node that is in a cycle, has two parents, is a second root, is listed twice, is
                unknown, is a class and yet a parent, or whose name is no string; also for what is no pair.
        """
        parent = _parents_of(map(named_edge, edges))
        inner = set(parent.values())
        leaves = {node for node in parent if node not in inner}
        order = sorted(map(str, leaves)) if classes is None else [str(name) for name in classes]
        _check_classes(order, leaves, inner)
        chains = _chains(order, parent)
        return _build(order, chains, distance)

    @classmethod
    def from_paths(cls, paths: Mapping[str, Sequence[str]], distance: Distance = "height") -> Hierarchy:
        """Build the tree from {class: (coarsest, ..., class)}; the root above the coarsest nodes is implied.

        Paths may differ in length. Classes keep the mapping's order. A name that directly follows itself on a path
        (FGVC's family "DHC-1" with its only variant "DHC-1") stands for a node and its only child.

        Raises:
            ValueError: as `from_edges`; also for a path that is empty, has an empty name or does not end in its class.
        """
        edges: dict[tuple[Hashable, Hashable], None] = {}
        leaf_of: dict[str, _Node] = {}
        for name, path in paths.items():
            if isinstance(path, str) or not path or path[-1] != name:
                raise ValueError(f"the path of class {name!r} must end in the class itself, got {path!r}")
            if odd := [part for part in path if not isinstance(part, str)]:
                raise ValueError(f"names of nodes must be strings, got {odd[0]!r} on the path of class {name!r}")
            if not all(path):
                raise ValueError(f"the path of class {name!r} has an empty name: {tuple(path)!r}")
            above, node = _ROOT, _ROOT
            for part in path:
                node = _Node(part, node.repeat + 1 if node is not _ROOT and part == node.name else 0)
                edges[above, node] = None
                above = node
            leaf_of[name] = node
        parent = _parents_of(edges)
        inner = set(parent.values())
        for name, leaf in leaf_of.items():
            if leaf in inner:
                raise ValueError(f"class {name!r} is also the parent of another node")
        _check_count(list(leaf_of))
        chains = _chains(list(leaf_of.values()), parent)
        return _build(list(leaf_of), chains, distance)

    @classmethod
    def read(
        cls,
        path: str | Path,
        classes: Sequence[str] | None = None,
        distance: Distance = "height",
        header: bool | None = None,
    ) -> Hierarchy:
        """Read a tree from a file.

        A `.csv` holds one path a row, coarsest first and the class last, or the class first and its ancestors after
        it (the column at one end whose names are all different is the class). A ragged tree leaves cells empty. Any
        other file holds `parent child` lines; blank lines and lines that start with "#" are skipped.

        Args:
            path: the file.
            classes: the target order; by default row order for a .csv, sorted leaves for lines.
            distance: see `distances`.
            header: whether a .csv begins with a header. By default its first row is one, unless one of its names
                stands again in its column: say False for a file without header whose first class has a family of its
                own.

        Raises:
            ValueError: naming the file, the line or the node that is wrong.
            OSError: the file cannot be read, or is no regular file.
        """
        path = Path(path)
        try:
            text = read_text(path, "utf-8-sig", follow=True)
            if path.suffix.lower() == ".csv":
                paths = paths_from_csv(text, header)
                if classes is not None:
                    _check_classes([str(name) for name in classes], set(paths), set())
                    paths = {str(name): paths[str(name)] for name in classes}
                return cls.from_paths(paths, distance)
            return cls.from_edges(edges_from_lines(text), classes, distance)
        except (ValueError, csv.Error) as error:
            raise ValueError(f"{path.name}: {error}") from None

    def digest(self) -> str:
        """Return the SHA-256 of everything that a result can depend on: class order, levels and distances."""
        content = [self.classes, self.height, self.level_targets.tolist(), self.distances.tolist()]
        text = json.dumps(content, separators=(",", ":"), ensure_ascii=True)
        return hashlib.sha256(text.encode()).hexdigest()


def _parents_of(edges: Iterable[tuple[Hashable, Hashable]]) -> dict[Hashable, Hashable]:
    """Return {child: parent} of a proper tree; every way of not being one is an error that names a node."""
    parent: dict[Hashable, Hashable] = {}
    nodes: dict[Hashable, None] = {}
    second_parents: list[tuple[Hashable, Hashable]] = []
    for above, node in edges:
        if node not in parent:
            parent[node] = above
        elif parent[node] == above:
            raise ValueError(f"duplicate: node {_show(node)} is listed twice under {_show(above)}")
        else:
            second_parents.append((above, node))
        nodes[above] = nodes[node] = None
    if not nodes:
        raise ValueError("the tree has no edges")
    safe: set[Hashable] = set()
    for start in nodes:
        walk: dict[Hashable, None] = {}
        node = start
        while node in parent and node not in safe:
            if node in walk:
                raise ValueError(f"node {_show(node)} is in a cycle")
            walk[node] = None
            node = parent[node]
        safe.update(walk)
    for above, node in second_parents[:1]:
        ancestor = above
        while ancestor in parent and ancestor != node:
            ancestor = parent[ancestor]
        if ancestor == node:
            raise ValueError(f"node {_show(node)} is in a cycle: {_show(above)} lies below it and is also its parent")
        raise ValueError(f"node {_show(node)} has two parents: {_show(parent[node])} and {_show(above)}")
    roots = [node for node in nodes if node not in parent]
    if len(roots) > 1:
        raise ValueError(f"two roots: {_show(roots[0])} and {_show(roots[1])}")
    return parent


def _show(node: Hashable) -> str:
    if node is _ROOT:
        return _ROOT.name
    return repr(node.name if isinstance(node, _Node) else node)


def _check_count(order: Sequence[str]) -> None:
    if len(order) < 2:
        raise ValueError(f"a hierarchy needs at least two classes, got {list(order)!r}")
    if len(order) > MOST_CLASSES:
        raise ValueError(f"a hierarchy has at most {MOST_CLASSES:,} classes, got {len(order):,}")


def _check_classes(order: Sequence[str], leaves: Iterable[Hashable], inner: set[Hashable]) -> None:
    """Raise unless the classes are exactly the leaves, each once."""
    leaves, seen = set(leaves), set()
    for name in order:
        if name in seen:
            raise ValueError(f"duplicate class {name!r}")
        if name in inner:
            raise ValueError(f"class {name!r} is also the parent of another node")
        if name not in leaves:
            raise ValueError(f"unknown class {name!r}: not a leaf of the tree")
        seen.add(name)
    if leaves - seen:
        raise ValueError(f"leaf {min(str(leaf) for leaf in leaves - seen)!r} of the tree is not among the classes")
    _check_count(order)


def _chains(leaves: Sequence[Hashable], parent: Mapping[Hashable, Hashable]) -> list[list[Hashable]]:
    """Return each leaf's path from below the root down to itself."""
    chains = []
    for leaf in leaves:
        chain = [leaf]
        while parent[chain[-1]] in parent:
            chain.append(parent[chain[-1]])
            if len(chain) > DEEPEST:
                raise ValueError(f"node {_show(leaf)} lies more than {DEEPEST} levels deep")
        chains.append(chain[::-1])
    return chains


def _natural(node: Hashable) -> tuple[list[tuple[int, int, str]], str]:
    """Sort key that puts "level-2" before "level-10"; the plain text settles what is left (a01, a1)."""
    text = f"{node.name} {node.repeat}" if isinstance(node, _Node) else str(node)
    parts = re.findall(r"[0-9]+|[^0-9]+", text)
    digits = ((part, part.lstrip("0")) for part in parts)  # compared as numbers, which may be of any length
    return [(0, len(rest), rest) if part[0] in "0123456789" else (1, 0, part) for part, rest in digits], text


def _build(classes: Sequence[str], chains: list[list[Hashable]], distance: Distance) -> Hierarchy:
    """Build the arrays: number the nodes of each level, then fill the distances, vectorised over pairs of classes."""
    if distance not in get_args(Distance):
        raise ValueError(f"distance must be one of {get_args(Distance)}, got {distance!r}")
    num_classes, depths = len(classes), np.array([len(chain) for chain in chains])
    height = int(depths.max())
    padded = [chain + chain[-1:] * (height - len(chain)) for chain in chains]
    targets = np.empty((num_classes, height), dtype=np.int64)
    for level in range(height - 1):
        index = {node: i for i, node in enumerate(sorted({path[level] for path in padded}, key=_natural))}
        targets[:, level] = [index[path[level]] for path in padded]
    targets[:, -1] = np.arange(num_classes)
    sizes = tuple(int(size) for size in targets.max(axis=0) + 1)

    parents = []
    for level in range(height - 1):
        above = np.empty(sizes[level + 1], dtype=np.int64)
        above[targets[:, level + 1]] = targets[:, level]
        parents.append(above)

    distances = np.full((num_classes, num_classes), height, dtype=np.int64)
    node_distances = []
    for level in range(height):  # from coarse to fine, so the deepest shared node has the last word
        node = targets[:, level]
        value = np.zeros(sizes[level], dtype=np.int64)  # height of the node: edges down to its deepest leaf
        np.maximum.at(value, node, np.maximum(depths - (level + 1), 0))
        if distance == "depth":
            value[value > 0] = height - (level + 1)
        same = node[:, None] == node[None, :]
        np.copyto(distances, value[node][:, None], where=same)
        node_distances.append(value)

    for array in (distances, targets, *parents, *node_distances):
        array.flags.writeable = False
    return Hierarchy(tuple(classes), height, distances, sizes, targets, tuple(parents), tuple(node_distances), distance)
