"""A tree as edges: what makes them one, and the paths that follow from them."""

import re
from collections.abc import Iterable, Mapping, Sequence, Set
from graphlib import CycleError, TopologicalSorter

from hierbench.hierarchy.node_paths import MAX_DEPTH, MOST_CLASSES


def named_edge(edge: tuple[str, str]) -> tuple[str, str]:
    """Return a (parent, child) pair of names unchanged; raise a ValueError for anything else."""
    try:
        above, node = edge
    except (TypeError, ValueError):
        raise ValueError(f"an edge must be a pair (parent, child), got {edge!r}") from None
    for name in (above, node):
        if not isinstance(name, str):
            raise ValueError(f"names of nodes must be strings, got {name!r} in the edge {(above, node)!r}")
        if not name:
            raise ValueError(f"the edge {(above, node)!r} has an empty name")
    return above, node


def parents_from_edges(edges: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return {child: parent} of a tree; raise a ValueError that names a node if the edges do not form one."""
    parent: dict[str, str] = {}
    nodes: dict[str, None] = {}  # in order of appearance
    second_parents: list[tuple[str, str]] = []
    graph = TopologicalSorter[str]()
    for above, node in edges:
        graph.add(node, above)
        if node not in parent:
            parent[node] = above
        elif parent[node] == above:
            raise ValueError(f"duplicate: node {node!r} is listed twice under {above!r}")
        else:
            second_parents.append((above, node))
        nodes[above] = nodes[node] = None
    if not nodes:
        raise ValueError("the tree has no edges")
    try:
        graph.prepare()
    except CycleError as error:
        cycle = set(error.args[1])
        raise ValueError(f"node {next(node for node in nodes if node in cycle)!r} is in a cycle") from None
    for above, node in second_parents:
        raise ValueError(f"node {node!r} has two parents: {parent[node]!r} and {above!r}")
    roots = [node for node in nodes if node not in parent]
    if len(roots) > 1:
        raise ValueError(f"two roots: {roots[0]!r} and {roots[1]!r}")
    return parent


def check_classes(classes: Sequence[str], leaves: Set[str], inner: Set[str]) -> None:
    """Raise a ValueError unless the classes are exactly the leaves, each once, and neither too few nor too many."""
    seen = set[str]()
    for name in classes:
        if name in seen:
            raise ValueError(f"duplicate class {name!r}")
        if name in inner:
            raise ValueError(f"class {name!r} is also the parent of another node")
        if name not in leaves:
            raise ValueError(f"unknown class {name!r}: not a leaf of the tree")
        seen.add(name)
    if leaves - seen:
        raise ValueError(f"leaf {min(leaves - seen)!r} of the tree is not among the classes")
    if len(classes) < 2:
        raise ValueError(f"a hierarchy needs at least two classes, got {', '.join(map(repr, classes)) or 'none'}")
    if len(classes) > MOST_CLASSES:
        raise ValueError(f"a hierarchy has at most {MOST_CLASSES:,} classes, got {len(classes):,}")


def leaf_chains(leaves: Sequence[str], parent: Mapping[str, str]) -> list[list[str]]:
    """Return each leaf's path from below the root down to itself."""
    chains = []
    for leaf in leaves:
        chain = [leaf]
        while parent[chain[-1]] in parent:
            chain.append(parent[chain[-1]])
            if len(chain) > MAX_DEPTH:
                raise ValueError(f"node {leaf!r} lies more than {MAX_DEPTH} levels deep")
        chains.append(chain[::-1])
    return chains


def natural_order(text: str) -> tuple[list[tuple[int, int, str]], str]:
    """Sort key that puts "level-2" before "level-10"; the plain text breaks ties (a01, a1)."""
    parts = re.findall(r"[0-9]+|[^0-9]+", text)
    digits = ((part, part.lstrip("0")) for part in parts)  # compared as numbers of any length
    return [(0, len(rest), rest) if part[0] in "0123456789" else (1, 0, part) for part, rest in digits], text
