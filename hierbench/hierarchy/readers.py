"""The two file formats of a tree, a CSV of paths and `parent child` lines, and the trees that the project ships."""

import csv
import io
from importlib import resources

MOST_CLASSES = 1 << 15  # the distance matrix takes 2 bytes per pair of classes; ImageNet-21K has 21,841 classes
DEEPEST = 256  # levels; WordNet has 20


def edges_from_lines(text: str) -> list[tuple[str, str]]:
    """Return the (parent, child) pairs of `parent child` lines; a ValueError names a malformed line."""
    edges = []
    for number, line in enumerate(text.splitlines(), 1):
        fields = line.split()
        if not fields or fields[0].startswith("#"):
            continue
        if len(fields) != 2:
            raise ValueError(f"line {number} is not 'parent child': {line.strip()!r}")
        edges.append((fields[0], fields[1]))
    return edges


def paths_from_csv(text: str, header: bool | None) -> tuple[dict[str, tuple[str, ...]], str]:
    """Return {class: (coarsest, ..., class)} of CSV rows, see `Hierarchy.read`, and whether they are paths or edges."""
    rows = [
        (number, [cell.strip() for cell in row])
        for number, row in enumerate(csv.reader(io.StringIO(text, newline="")), 1)
        if any(cell.strip() for cell in row)
    ]
    if not rows:
        raise ValueError("the file is empty")
    if len(rows) > MOST_CLASSES + 1:
        raise ValueError(f"it has more than {MOST_CLASSES:,} rows")
    for number, row in rows:
        if len(row) > DEEPEST:
            raise ValueError(f"line {number} has more than {DEEPEST} columns")
    width = max(len(row) for _, row in rows)
    rows = [(number, row + [""] * (width - len(row))) for number, row in rows]
    if width == 2 and (edges := _edges_from_columns(rows, header)):
        return paths_from_edges(edges), "edges"
    first = rows[0][1]
    columns = list(zip(*(row for _, row in rows[1:]), strict=True)) or [()] * width
    if header is None:
        header = not any(cell and cell in column for cell, column in zip(first, columns, strict=True))
    rows = rows[1:] if header else rows
    if not rows:
        raise ValueError("the file has no path below the header")
    forward = [(number, tuple(cell for cell in row if cell)) for number, row in rows]
    first_cells = [row[0] for _, row in rows]
    last_names = [path[-1] for _, path in forward]
    if len(set(last_names)) < len(last_names) and "" not in first_cells and len(set(first_cells)) == len(rows):
        forward = [(number, path[::-1]) for number, path in forward]
    paths: dict[str, tuple[str, ...]] = {}
    for number, path in forward:
        if path[-1] in paths:
            raise ValueError(f"line {number}: duplicate class {path[-1]!r}")
        paths[path[-1]] = path
    return paths, "paths"


def _edges_from_columns(rows: list[tuple[int, list[str]]], header: bool | None) -> list[tuple[str, str]]:
    """Return the (parent, child) pairs of two columns, in either direction; [] if they are paths."""
    # In paths no name is in both columns, except in one row that repeats it. Edges may begin with a header, which has
    # no name in common with the others; a row with one name is a node below the root.
    pairs = [(row[0], row[1]) for _, row in rows]
    if header is None:
        header = not {*pairs[0]} & {name for pair in pairs[1:] for name in pair if name}
    pairs = pairs[1:] if header else pairs
    children, right = ([pair[side] for pair in pairs if pair[0] != pair[1] and pair[side]] for side in (0, 1))
    if not set(children) & set(right):
        return []
    if len(set(children)) == len(children) and len(set(right)) < len(right):  # child, parent
        pairs = [(above, node) for node, above in pairs]
    return [(above, node) if node else ("", above) for above, node in pairs]


def paths_from_edges(edges: list[tuple[str, str]]) -> dict[str, tuple[str, ...]]:
    """Return {leaf: (coarsest, ..., leaf)} in the order of the (parent, child) pairs, without the root.

    A node with the parent "" has no parent. The only node without one is the root; above several, one is implied.

    Raises:
        ValueError: a node has two parents or is in a cycle, or nothing is below the root.
    """
    parent: dict[str, str] = {}
    for above, node in edges:
        if parent.setdefault(node, above) != above:
            raise ValueError(f"node {node!r} has two parents: {parent[node]!r} and {above!r}")
    inner = set(parent.values())
    names = {name for edge in edges for name in edge if name}
    tops = [name for name in names if not parent.get(name)]
    root = tops[0] if len(tops) == 1 else ""
    paths, reached = {}, {root}
    for leaf in parent:
        if leaf in inner:
            continue
        path = [leaf]
        while (above := parent.get(path[-1], "")) not in ("", root):
            if above in path:
                raise ValueError(f"node {above!r} is in a cycle")
            path.append(above)
            if len(path) > DEEPEST:
                raise ValueError(f"node {leaf!r} lies more than {DEEPEST} levels deep")
        paths[leaf] = tuple(reversed(path))
        reached.update(path)
    if lost := names - reached:
        raise ValueError(f"node {min(lost)!r} is in a cycle")
    return paths


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


def shipped_names() -> list[str]:
    """Return the names of the trees in benchmarks/hierarchies."""
    files = (resources.files("hierbench.benchmarks") / "hierarchies").iterdir()
    return sorted(file.name.removesuffix(".csv") for file in files if file.name.endswith(".csv"))


def shipped_paths(name: str) -> dict[str, tuple[str, ...]]:
    """Return {class: path} of a tree in benchmarks/hierarchies, in the file's order."""
    file = resources.files("hierbench.benchmarks").joinpath(f"hierarchies/{name}.csv")
    rows = list(csv.reader(file.read_text(encoding="utf-8").splitlines()))[1:]
    paths = [tuple(cell for cell in row if cell) for row in rows]
    return {path[-1]: path for path in paths}
