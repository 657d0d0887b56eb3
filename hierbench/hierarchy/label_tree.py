"""The label tree: leaf classes, their levels and the hierarchical distance between any two of them.

Shapes: K classes (leaves), L levels (root excluded, coarsest first), height = edges on the longest root-to-leaf path.
"""

import csv
import hashlib
import re
from collections.abc import Hashable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Literal, NamedTuple, Self, get_args

import numpy as np
from numpy.typing import NDArray

from hierbench.hierarchy.distances import distance_matrix, json_parts
from hierbench.hierarchy.readers import (
    DEEPEST,
    MOST_CLASSES,
    edges_from_lines,
    named_edge,
    paths_from_csv,
    shipped_names,
    shipped_paths,
)
from hierbench.utils.errors import unknown_name
from hierbench.utils.files import read_text

Distance = Literal["height", "depth"]
IntArray = NDArray[np.int64]


class _Node(NamedTuple):
    """A node read from paths; `repeat` numbers a name that directly follows itself (a family and its one variant)."""

    name: str
    repeat: int

    def __str__(self) -> str:
        return f"{self.name} {self.repeat}"


_ROOT = _Node("the root above all paths", 0)


@dataclass(frozen=True, eq=False)
class Hierarchy:
    """An immutable tree over K leaf classes.

    Attributes:
        classes: leaf names; the position is the target index.
        height: d_max, the edges on the longest root-to-leaf path.
        distances: [K, K] int16. "height": height of the lowest common ancestor (LCA); "depth": height - depth(LCA),
            zero on the diagonal. The two agree where all leaves have the same depth. Convert them for arithmetic that
            can exceed 32,767, and before `numpy.exp`, which computes in the float32 that holds them.
        level_sizes: nodes per level, coarsest first, root excluded, finest = K.
        level_targets: [K, L] int, node index of each class at each level. A leaf above the deepest level is repeated
            downwards. Coarse nodes are numbered in the (natural) order of their names, finest nodes are the classes.
        parents: `parents[l][n]` is the index at level l of the parent of node n at level l + 1; L - 1 arrays.
        node_distances: `node_distances[l][n]` is the distance of two classes whose LCA is node n of level l, zero for
            a leaf and its repetitions; L arrays.
    """

    classes: tuple[str, ...]
    height: int
    distances: NDArray[np.int16]
    level_sizes: tuple[int, ...]
    level_targets: IntArray
    parents: tuple[IntArray, ...]
    node_distances: tuple[IntArray, ...]
    distance: Distance

    def __repr__(self) -> str:
        """Return the tree's sizes in one line."""
        return f"Hierarchy({self.num_classes} classes, level_sizes={self.level_sizes}, distance={self.distance!r})"

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
    ) -> Self:
        """Build the tree from (parent, child) pairs.

        Args:
            edges: (parent, child) names, in any order.
            classes: all leaves, in target order; by default the leaves in sorted order.
            distance: "height" or "depth", see `distances`.

        Raises:
            ValueError: a node is in a cycle, has two parents, is a second root, is listed twice, is unknown, or is both
                a class and a parent; its name is not a string; or an edge is not a pair.
        """
        parent = _parents_from_edges(map(named_edge, edges))
        if classes is None:
            classes = sorted(map(str, parent.keys() - parent.values()))
        order = [str(name) for name in classes]
        return cls._from_nodes(order, order, parent, distance)

    @classmethod
    def from_paths(cls, paths: Mapping[str, Sequence[str]], distance: Distance = "height") -> Self:
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
        return cls._from_nodes(list(leaf_of), list(leaf_of.values()), _parents_from_edges(edges), distance)

    @classmethod
    def read(
        cls,
        path: str | Path,
        classes: Sequence[str] | None = None,
        distance: Distance = "height",
        header: bool | None = None,
    ) -> Self:
        """Read a tree from a file.

        A `.csv` holds one path per row, either coarsest first and the class last or the other way round (the end column
        whose names are all different is the class). A ragged tree leaves cells empty. A `.csv` of two columns in which
        a name of one column is also in the other holds edges, parent and child or the other way round. Any other file
        holds `parent child` lines; blank lines and lines that start with "#" are skipped.

        Args:
            path: the file.
            classes: the target order; by default row order for a .csv, sorted leaves for lines.
            distance: see `distances`.
            header: whether a .csv begins with a header. By default its first row is a header unless one of its names
                occurs again in the same column; pass False for a file without header whose first row shares no node
                with the others.

        Raises:
            ValueError: the content is wrong; the error names the file and the line or node.
            OSError: the file cannot be read, or is not a regular file.
        """
        path = Path(path)
        try:
            text = read_text(path, "utf-8-sig", follow=True)
            if path.suffix.lower() == ".csv":
                paths, _ = paths_from_csv(text, header)
                if classes is not None:
                    order = [str(name) for name in classes]
                    _check_classes(order, set(paths), set())
                    paths = {name: paths[name] for name in order}
                return cls.from_paths(paths, distance)
            return cls.from_edges(edges_from_lines(text), classes, distance)
        except (ValueError, csv.Error) as error:
            raise ValueError(f"{path.name}: {error}") from None

    @classmethod
    def load(cls, name: str, distance: Distance = "height") -> Self:
        """Return a tree that the project ships, such as "cifar100" or "imagenet1k", its classes in target order.

        Raises:
            UserError: unknown name.
        """
        if name not in shipped_names():
            raise unknown_name("tree", name, shipped_names())
        return cls.from_paths(shipped_paths(name), distance)

    @classmethod
    def _from_nodes(
        cls, classes: Sequence[str], nodes: Sequence[Hashable], parent: Mapping[Hashable, Hashable], distance: Distance
    ) -> Self:
        """Return the tree {child: parent} over the classes with these leaves, both in target order."""
        inner = set(parent.values())
        _check_classes(nodes, parent.keys() - inner, inner)
        chains = _chains(nodes, parent)
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

        node_distances = []
        for level in range(height):
            value = np.zeros(sizes[level], dtype=np.int64)  # height of the node: edges down to its deepest leaf
            np.maximum.at(value, targets[:, level], np.maximum(depths - (level + 1), 0))
            if distance == "depth":
                value[value > 0] = height - (level + 1)
            node_distances.append(value)
        distances = distance_matrix(height, targets, node_distances)

        distances.flags.writeable = False
        for array in (targets, *parents, *node_distances):
            array.flags.writeable = False
        return cls(tuple(classes), height, distances, sizes, targets, tuple(parents), tuple(node_distances), distance)

    def digest(self) -> str:
        """Return the SHA-256 of everything that a result can depend on: class order, levels and distances."""
        digest = hashlib.sha256()
        for part in json_parts([self.classes, self.height, self.level_targets.tolist()], self.distances):
            digest.update(part)
        return digest.hexdigest()


def _parents_from_edges(edges: Iterable[tuple[Hashable, Hashable]]) -> dict[Hashable, Hashable]:
    """Return {child: parent} of a tree; raise a ValueError that names a node if the edges do not form one."""
    parent: dict[Hashable, Hashable] = {}
    nodes: dict[Hashable, None] = {}  # in order of appearance
    second_parents: list[tuple[Hashable, Hashable]] = []
    graph = TopologicalSorter[Hashable]()
    for above, node in edges:
        graph.add(node, above)
        if node not in parent:
            parent[node] = above
        elif parent[node] == above:
            raise ValueError(f"duplicate: node {_show(node)} is listed twice under {_show(above)}")
        else:
            second_parents.append((above, node))
        nodes[above] = nodes[node] = None
    if not nodes:
        raise ValueError("the tree has no edges")
    try:
        graph.prepare()
    except CycleError as error:
        cycle = set(error.args[1])
        raise ValueError(f"node {_show(next(node for node in nodes if node in cycle))} is in a cycle") from None
    for above, node in second_parents:
        raise ValueError(f"node {_show(node)} has two parents: {_show(parent[node])} and {_show(above)}")
    roots = [node for node in nodes if node not in parent]
    if len(roots) > 1:
        raise ValueError(f"two roots: {_show(roots[0])} and {_show(roots[1])}")
    return parent


def _show(node: Hashable) -> str:
    if node is _ROOT:
        return _ROOT.name
    return repr(node.name if isinstance(node, _Node) else node)


def _check_classes(classes: Sequence[Hashable], leaves: Set[Hashable], inner: Set[Hashable]) -> None:
    """Raise a ValueError unless the classes are exactly the leaves, each once, and neither too few nor too many."""
    seen = set[Hashable]()
    for name in classes:
        if name in seen:
            raise ValueError(f"duplicate class {_show(name)}")
        if name in inner:
            raise ValueError(f"class {_show(name)} is also the parent of another node")
        if name not in leaves:
            raise ValueError(f"unknown class {_show(name)}: not a leaf of the tree")
        seen.add(name)
    if leaves - seen:
        raise ValueError(f"leaf {min(str(leaf) for leaf in leaves - seen)!r} of the tree is not among the classes")
    if len(classes) < 2:
        raise ValueError(f"a hierarchy needs at least two classes, got {', '.join(map(_show, classes)) or 'none'}")
    if len(classes) > MOST_CLASSES:
        raise ValueError(f"a hierarchy has at most {MOST_CLASSES:,} classes, got {len(classes):,}")


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
    """Sort key that puts "level-2" before "level-10"; the plain text breaks ties (a01, a1)."""
    text = str(node)
    parts = re.findall(r"[0-9]+|[^0-9]+", text)
    digits = ((part, part.lstrip("0")) for part in parts)  # compared as numbers of any length
    return [(0, len(rest), rest) if part[0] in "0123456789" else (1, 0, part) for part, rest in digits], text
