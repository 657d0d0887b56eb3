"""Paths from the root to the classes: their nodes, numbered, and the paths that edges make.

A node is its path from the root, not its name: one genus name in two kingdoms is two nodes. In edges it is its name.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from hierbench.hierarchy.tree_options import Parents
from hierbench.utils.errors import Argument, InputError
from hierbench.utils.text import counted

MOST_CLASSES = 1_000_000
MAX_DEPTH = 256  # levels; WordNet has 20
MOST_CELLS = 1 << 23  # of a table, or nodes on all paths
MAX_NODE_EXAMPLES = 3  # examples in an error
WHOLE_NUMBER = re.compile(r"[+-]?\d+")

NodePath = tuple[str, ...]  # (coarsest, ..., class)


@dataclass(frozen=True)
class Branches:
    """What a form of a tree becomes before its classes are checked.

    Attributes:
        paths: (coarsest, ..., class) of each class, perhaps several times.
        form: "paths", "edges", or "lines" of edges, whose classes are sorted by name.
        source: the form, as in "JSON, nested objects".
        layout: the columns and the direction.
        notes: what was left out, counted or ignored.
        places: where each path is, as in "line 3"; or none.
        join: the argument that joins columns to one name, where classes repeat.
        may_repeat: whether equal paths are one class, as where columns were left out.
        levels: the names of the levels, where the source has them.
        num_blanks: rows whose coarsest cell is missing.
    """

    paths: Sequence[NodePath]
    form: str
    source: str
    layout: str
    notes: tuple[str, ...] = ()
    places: Sequence[str] = ()
    join: Argument | None = None
    may_repeat: bool = False
    levels: tuple[str, ...] = ()
    num_blanks: int = 0


def check_size(num_cells: int, depth: int = 0) -> None:
    """Raise a ValueError for a table or a tree that is too large or too deep."""
    if num_cells > MOST_CELLS:
        raise ValueError(f"it has more than {MOST_CELLS:,} cells")
    if depth > MAX_DEPTH:
        raise ValueError(f"it has more than {MAX_DEPTH} levels or columns")


class PathNodes(NamedTuple):
    """The nodes of paths, numbered in order of appearance; the root is 0.

    Attributes:
        names: of each node the text that orders it, in which a number after the name tells a node from its only child
            of the same name (a family and its one variant), and the name.
        parents: of each node, the number of the node above it, -1 for the root.
        chains: for each path the numbers of its nodes, without the root.
    """

    names: list[tuple[str, str]]
    parents: list[int]
    chains: list[list[int]]


def number_nodes(paths: Iterable[Sequence[str]]) -> PathNodes:
    """Return the nodes of paths; equal beginnings are the same nodes."""
    children: list[dict[str, int]] = [{}]  # of each node, by name
    names = [("", "")]
    parents = [-1]
    repeats = [0]
    chains = list[list[int]]()
    for path in paths:
        node = 0
        chain = list[int]()
        for name in path:
            child = children[node].get(name)
            if child is None:
                child = children[node][name] = len(names)
                children.append({})
                parents.append(node)
                repeats.append(repeats[node] + 1 if node and name == names[node][1] else 0)
                names.append((f"{name} {repeats[child]}", name))
            chain.append(child)
            node = child
        chains.append(chain)
    return PathNodes(names, parents, chains)


def paths_from_edges(
    edges: Iterable[tuple[str, str]], names: Mapping[str, str] | None = None, parents: Parents = "error"
) -> tuple[list[NodePath], str]:
    """Return the paths of all leaves, in their order as children, without the root, and a note.

    The parent "" stands for none. The only node without a parent is the root; above several, one is implied.

    Args:
        edges: (parent, child) names, or numbers of nodes.
        names: of the nodes, where edges hold numbers.
        parents: which parent to keep of a node that has several: the first one, or that of the shortest or longest
            path from the root.

    Raises:
        ValueError: a node is in a cycle, or has several parents; the error names it.
    """
    parents_of: dict[str, list[str]] = {}
    children_of: dict[str, list[str]] = {}
    for above, node in edges:
        listed = parents_of.setdefault(node, [])
        if above:
            parents_of.setdefault(above, [])
            if above not in listed:
                listed.append(above)
                children_of.setdefault(above, []).append(node)
    order = _topological_order(parents_of, children_of)
    names = names or {}
    several = [node for node, listed in parents_of.items() if len(listed) > 1]
    if several and parents == "error":
        raise _several_parents(several, parents_of, names)
    roots = [node for node, listed in parents_of.items() if not listed]
    root = roots[0] if len(roots) == 1 else None
    depth: dict[str, int] = {}
    path_of: dict[str, NodePath] = {}
    for node in order:
        listed = parents_of[node]
        if not listed:
            path_of[node] = () if node == root else (names.get(node, node),)
            depth[node] = 0
            continue
        above = listed[0]
        if parents != "first" and len(listed) > 1:
            above = (min if parents == "shortest" else max)(listed, key=lambda other: depth[other])
        depth[node] = depth[above] + 1
        if depth[node] > MAX_DEPTH:
            raise ValueError(f"node {names.get(node, node)!r} lies more than {MAX_DEPTH} levels deep")
        path_of[node] = (*path_of[above], names.get(node, node))
    note = f"{counted(len(several), 'node')} with several parents: the {parents} kept" if several else ""
    return [path_of[node] for node in parents_of if node not in children_of and path_of[node]], note


def _topological_order(parents_of: Mapping[str, list[str]], children_of: Mapping[str, list[str]]) -> list[str]:
    """Return the nodes, each after its parents; a ValueError names a node in a cycle."""
    waiting = {node: len(listed) for node, listed in parents_of.items()}
    order = [node for node, num in waiting.items() if not num]
    for node in order:
        for child in children_of.get(node, ()):
            waiting[child] -= 1
            if not waiting[child]:
                order.append(child)
    if len(order) < len(waiting):
        node = next(node for node, num in waiting.items() if num)
        walked: dict[str, None] = {}
        while node not in walked:
            walked[node] = None
            node = next(above for above in parents_of[node] if waiting[above])
        cycle = list(walked)[list(walked).index(node) :]
        first = min(cycle, key=list(parents_of).index) if len(cycle) < 1000 else node
        raise ValueError(f"node {first!r} is in a cycle")
    return order


def _several_parents(
    several: Sequence[str], parents_of: Mapping[str, list[str]], names: Mapping[str, str]
) -> InputError:
    def show(node: str) -> str:
        return repr(names.get(node, node))

    examples = []
    for node in several[:MAX_NODE_EXAMPLES]:
        parents = ", ".join(map(show, parents_of[node][:MAX_NODE_EXAMPLES]))
        more = ", ..." if len(parents_of[node]) > MAX_NODE_EXAMPLES else ""
        examples.append(f"{show(node)} ({parents}{more})")
    if len(several) == 1:
        first, second = parents_of[several[0]][:2]
        problem = f"node {show(several[0])} has several parents: {show(first)} and {show(second)}"
    else:
        problem = f"{len(several):,} nodes have several parents: {', '.join(examples)}"
    keep = Argument("parents", "first")
    return InputError(f"{problem}; {keep}, shortest or longest keeps one of each", keep)


def in_order_of_numbers(names: Iterable[str]) -> list[str]:
    """Return names in the order of their numbers if all are whole numbers, else unchanged."""
    listed = list(names)
    return sorted(listed, key=_number) if all(map(WHOLE_NUMBER.fullmatch, listed)) else listed


def _number(text: str) -> tuple[int, str, str]:
    """Return a key that sorts whole numbers of any length; Python turns no more than 4,300 digits into a number."""
    digits = text.lstrip("+-0")
    if text.startswith("-") and digits:
        return -len(digits), "".join(chr(105 - ord(digit)) for digit in digits), text
    return len(digits), digits, text
