"""The label tree: leaf classes, their levels and the hierarchical distance between any two of them.

Shapes: K classes (leaves), L levels (root excluded, coarsest first), height = edges on the longest root-to-leaf path.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hierbench.hierarchy.distances import distance_matrix, json_parts
from hierbench.hierarchy.edges import check_classes, leaf_chains, named_edge, natural_order, parents_from_edges
from hierbench.hierarchy.node_paths import MAX_DEPTH, WHOLE_NUMBER, in_order_of_numbers, number_nodes
from hierbench.hierarchy.readers import TreeReading, read_tree, shipped_names, shipped_paths
from hierbench.hierarchy.tree_options import Form, Inner, Parents, TreeOptions
from hierbench.utils.errors import unknown_name
from hierbench.utils.processes import without_collection

Distance = Literal["height", "depth"]
IntArray = NDArray[np.int64]
NodeName = tuple[str, str]  # the text that orders a node among those of its level, and its name
MATRIX_CLASSES = 2000  # above as many nothing of the project asks for all distances
_ROOT = "\0root"  # of lines, whose own root has no name left


@dataclass(frozen=True, eq=False)
class Hierarchy:
    """An immutable tree over K leaf classes.

    Attributes:
        classes: leaf names; the position is the target index.
        height: d_max, the edges on the longest root-to-leaf path.
        level_sizes: nodes per level, coarsest first, root excluded, finest = K.
        level_targets: [K, L] int, node index of each class at each level. A leaf above the deepest level is repeated
            downwards. Coarse nodes are numbered in the (natural) order of their names, finest nodes are the classes.
        parents: `parents[l][n]` is the index at level l of the parent of node n at level l + 1; L - 1 arrays.
        node_distances: `node_distances[l][n]` is the distance of two classes whose LCA is node n of level l, zero for
            a leaf and its repetitions; L arrays.
        distance: "height" or "depth", see `distances`.
        level_names: names of the nodes of each level; L tuples.
        reading: of a tree that was read, its paths, the reading in lines, and what looks like a slip; else None.
    """

    classes: tuple[str, ...]
    height: int
    level_sizes: tuple[int, ...]
    level_targets: IntArray
    parents: tuple[IntArray, ...]
    node_distances: tuple[IntArray, ...]
    distance: Distance
    level_names: tuple[tuple[str, ...], ...]
    reading: ClassVar[TreeReading | None] = None

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

    @cached_property
    def has_numbers(self) -> bool:
        """Whether the classes are whole numbers, as those of iNaturalist: a number then is a class's name."""
        return all(map(WHOLE_NUMBER.fullmatch, self.classes)) and len(set(map(int, self.classes))) == self.num_classes

    def level_of(self, name: str) -> int | None:
        """Return the level, 1 the coarsest, of an inner node of this name; None without one."""
        return next((level for level, names in enumerate(self.level_names[:-1], 1) if name in names), None)

    def distances_between(self, first: ArrayLike, second: ArrayLike) -> IntArray:
        """Return the distances of classes and other classes, of shapes that broadcast: of the deepest common nodes."""
        classes, others = np.broadcast_arrays(np.asarray(first), np.asarray(second))
        distances = np.full(classes.shape, self.height, dtype=np.int64)
        for nodes, value in zip(self.level_targets.T, self.node_distances, strict=True):
            ancestors = nodes[classes]
            np.copyto(distances, value[ancestors], where=ancestors == nodes[others])
        return distances

    @cached_property
    def distances(self) -> NDArray[np.int16]:
        """[K, K] int16, made when it is first asked for; `distances_between` needs no matrix.

        "height": height of the lowest common ancestor (LCA); "depth": height - depth(LCA), zero on the diagonal. The
        two agree where all leaves have the same depth. Convert them for arithmetic that can exceed 32,767, and before
        `numpy.exp`, which computes in the float32 that holds them.
        """
        distances = distance_matrix(self.height, self.level_targets, self.node_distances)
        distances.flags.writeable = False
        return distances

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
            classes: all leaves, in target order; by default the leaves sorted, whole numbers as numbers.
            distance: "height" or "depth", see `distances`.

        Raises:
            ValueError: a node is in a cycle, has two parents, is a second root, is listed twice, is unknown, or is both
                a class and a parent; its name is not a string; or an edge is not a pair.
        """
        parent = parents_from_edges(map(named_edge, edges))
        inner = set(parent.values())
        if classes is None:
            classes = in_order_of_numbers(sorted(parent.keys() - inner))
        order = [str(name) for name in classes]
        check_classes(order, parent.keys() - inner, inner)
        return cls._from_chains(order, leaf_chains(order, parent), {name: (name, name) for name in parent}, distance)

    @classmethod
    def from_paths(cls, paths: Mapping[str, Sequence[str]], distance: Distance = "height") -> Self:
        """Build the tree from {class: (coarsest, ..., class)}; the root above the coarsest nodes is implied.

        Paths may differ in length. Classes keep the mapping's order. A node is its path: one name below two parents
        is two nodes, and a name that directly follows itself (FGVC's family "DHC-1" with its only variant "DHC-1")
        stands for a node and its only child.

        Raises:
            ValueError: a path is empty, has an empty name, does not end in its class, or goes on below another class.
        """
        for name, path in paths.items():
            if isinstance(path, str) or not path or path[-1] != name:
                raise ValueError(f"the path of class {name!r} must end in the class itself, got {path!r}")
            for part in path:
                if not isinstance(part, str):
                    raise ValueError(f"names of nodes must be strings, got {part!r} on the path of class {name!r}")
            if not all(path):
                raise ValueError(f"the path of class {name!r} has an empty name: {tuple(path)!r}")
            if len(path) > MAX_DEPTH:
                raise ValueError(f"node {name!r} lies more than {MAX_DEPTH} levels deep")
        nodes = number_nodes(paths.values())
        inner = set(nodes.parents)
        for name, chain in zip(paths, nodes.chains, strict=True):
            if chain[-1] in inner:
                raise ValueError(f"class {name!r} is also the parent of another node")
        check_classes(list(paths), paths.keys(), set())
        return cls._from_chains(list(paths), nodes.chains, dict(enumerate(nodes.names)), distance)

    @classmethod
    def read(
        cls,
        source: Any,
        classes: Sequence[str] | None = None,
        distance: Distance = "height",
        header: bool | None = None,
        *,
        columns: str | Sequence[str] = "",
        form: Form | None = None,
        parents: Parents = "error",
        inner: Inner = "error",
        encoding: str = "utf-8",
        fill: bool = False,
        fix: str = "",
        accept: str = "",
        separator: str = "",
    ) -> Self:
        """Read a tree from a file or an object; what it was read as is its attribute `reading`.

        Args:
            source: a file: a table of paths, of edges, or of ids with their parents' ids and names (`.csv`, `.tsv`,
                `.parquet`), `parent child` lines, JSON or Newick. Or a `pandas.DataFrame`, a `networkx.DiGraph`, a
                list of records, paths or edges, nested dicts, {class: path} or {child: parent}.
            classes: the target order. By default whole numbers in their order, leaves of lines sorted by name, all
                others in the order of the source.
            distance: see `distances`.
            header: whether a table begins with a header. By default it does where its first row has names of columns
                that are known here.
            columns: of a table, coarsest first, by name or from 1; "genus+epithet" joins two to one name. Of edges:
                parent, child. Of ids: parent, id, name.
            form: "paths", "edges" or "ids", where a table could be either.
            parents: which parent to keep of a node that has several: "first", "shortest" or "longest" (the path from
                the root); by default they are an error.
            inner: "leaf" makes of a class that is also a parent a leaf "NAME (unspecified)" below it; "drop" takes it
                as a node alone.
            encoding: of a file.
            fill: whether empty cells of a table mean the cell above.
            fix: kinds of slips to mend, "case" and "placeholders", separated by commas.
            accept: kinds of findings that are meant, see `hierbench.hierarchy.tree_findings`.
            separator: of a table's columns; by default that of all rows.

        Raises:
            ValueError: the source is no tree, or could be read in two ways; the error names the line or node, and the
                argument that decides.
            OSError: the file cannot be read, or is not a regular file.
        """
        names = columns if isinstance(columns, str) else ",".join(map(str, columns))
        options = TreeOptions(names, form, parents, inner, encoding, fill, fix, accept, separator)
        reading = read_tree(source, options, header)
        paths = reading.paths
        chains = reading.nodes.chains
        order = list(paths) if classes is None else [str(name) for name in classes]
        check_classes(order, paths.keys(), set())
        if reading.form == "lines":  # their nodes are their names, by which a level is sorted
            edges = {pair: None for path in paths.values() for pair in zip((_ROOT, *path), path, strict=False)}
            tree = cls.from_edges(edges, order, distance)
        else:
            chain_of = dict(zip(paths, chains, strict=True))
            tree = cls._from_chains(
                [*order], [chain_of[name] for name in order], dict(enumerate(reading.nodes.names)), distance
            )
        object.__setattr__(tree, "reading", reading)
        return tree

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
    @without_collection()
    def _from_chains(
        cls, classes: Sequence[str], chains: Sequence[list[Any]], names: Mapping[Any, NodeName], distance: Distance
    ) -> Self:
        """Return the tree of the classes' chains of nodes, below the root and down to the class."""
        if distance not in get_args(Distance):
            raise ValueError(f"distance must be one of {get_args(Distance)}, got {distance!r}")
        num_classes = len(classes)
        depths = np.array([len(chain) for chain in chains])
        height = int(depths.max())
        padded = [chain + chain[-1:] * (height - len(chain)) for chain in chains]
        targets = np.empty((num_classes, height), dtype=np.int64)
        level_names = list[tuple[str, ...]]()
        parent_index = dict.fromkeys((path[0] for path in padded), 0)  # of each node of the level
        for level in range(height - 1):
            nodes = sorted(parent_index, key=lambda node: (natural_order(names[node][0]), parent_index[node]))
            level_names.append(tuple(names[node][1] for node in nodes))
            index = {node: i for i, node in enumerate(nodes)}
            targets[:, level] = [index[path[level]] for path in padded]
            parent_index = {path[level + 1]: index[path[level]] for path in padded}
        targets[:, -1] = np.arange(num_classes)
        level_names.append(tuple(classes))
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
        for array in (targets, *parents, *node_distances):
            array.flags.writeable = False
        return cls(
            tuple(classes), height, sizes, targets, tuple(parents), tuple(node_distances), distance, tuple(level_names)
        )

    def digest(self) -> str:
        """Return the SHA-256 of everything that a result can depend on: class order, levels and distances.

        Above `MATRIX_CLASSES` the distances of nodes stand for those of all pairs.
        """
        digest = hashlib.sha256()
        if self.num_classes > MATRIX_CLASSES:
            content = [self.classes, self.height, self.distance]
            digest.update(json.dumps(content, separators=(",", ":"), ensure_ascii=True).encode())
            for numbers in (self.level_targets, *self.node_distances):
                digest.update(numbers.astype("<i8").tobytes())
            return digest.hexdigest()
        for part in json_parts([self.classes, self.height, self.level_targets.tolist()], self.distances):
            digest.update(part)
        return digest.hexdigest()
