"""The one door for trees: whatever form a tree has becomes paths here, and what it was read as is said.

Also the trees that the project ships.
"""

import csv
import io
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from hierbench.hierarchy.node_paths import (
    MAX_DEPTH,
    Branches,
    NodePath,
    PathNodes,
    in_order_of_numbers,
    number_nodes,
)
from hierbench.hierarchy.tree_findings import Finding, find_slips, mend
from hierbench.hierarchy.tree_forms import branches_from_file, branches_from_object, branches_from_text
from hierbench.hierarchy.tree_options import DEFAULT_OPTIONS, TreeOptions
from hierbench.utils.errors import Argument, InputError, UserError, error_line
from hierbench.utils.processes import without_collection
from hierbench.utils.text import counted, one_line

Paths = dict[str, NodePath]  # {class: (coarsest, ..., class)}, in target order
UNSPECIFIED = "{} (unspecified)"  # the leaf that stands for a class that is also a parent
MAX_SHOWN = 60  # characters of a name, and numbers of levels, in what was understood


@dataclass(frozen=True)
class TreeReading:
    """A tree that was read: {class: path}, its form, the reading in up to five lines, and what looks like a slip.

    The form is "paths", "edges", or "lines" of edges; `levels` are the names of the levels, where the source has them.
    """

    paths: Paths
    form: str
    about: tuple[str, ...]
    nodes: PathNodes
    levels: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()

    def content(self) -> dict[str, Any]:
        """Return reading, levels and findings, for JSON."""
        height = max(map(len, self.paths.values()))
        nodes = [{path[: level + 1] for path in self.paths.values() if len(path) > level} for level in range(height)]
        names = self.levels if len(self.levels) == height else [""] * height
        return {
            "schema": 1,
            "form": self.form,
            "classes": len(self.paths),
            "reading": list(self.about),
            "levels": [{"name": name, "nodes": len(level)} for name, level in zip(names, nodes, strict=True)],
            "findings": [vars(finding) for finding in self.findings],
        }

    def advice(self, file: str) -> list[str]:
        """Return a line that says how to see what looks like a slip, where there is something."""
        number = len(self.findings)
        return [f"{counted(number, 'finding')}: hierbench data tree {shlex.quote(Path(file).name)}"] if number else []


def read_tree(source: Any, options: TreeOptions = DEFAULT_OPTIONS, header: bool | None = None) -> TreeReading:
    """Read a tree from a file or an object, see `Hierarchy.read`.

    Raises:
        ValueError: it is no tree, or can be read in two ways; the error names the file, and the line or node.
        OSError: the file cannot be read.
    """
    is_file = isinstance(source, str | Path)
    name = Path(source).name if is_file else f"{type(source).__name__}"
    try:
        with without_collection():
            if is_file:
                branches = branches_from_file(Path(source), options, header)
            else:
                branches = branches_from_object(source, options)
            return _check(branches, options, name)
    except (ValueError, csv.Error) as error:
        raise ValueError(f"{name}: {error}") from None
    except RecursionError:
        raise ValueError(f"{name}: it is nested too deeply") from None
    except (AttributeError, IndexError, KeyError, OverflowError, TypeError) as error:  # of content in no form of a tree
        raise ValueError(f"{name}: it is no tree in a form that is read ({error_line(error)})") from None


def _check(branches: Branches, options: TreeOptions, name: str) -> TreeReading:
    """Return the paths by class, in target order; a ValueError for classes that repeat, or that are also parents."""
    paths = _choose_paths(branches, options)
    notes = list(branches.notes)
    if not paths:
        raise ValueError("it has no classes")
    deep = next((leaf for leaf, path in paths.items() if len(path) > MAX_DEPTH), "")
    if deep:
        raise ValueError(f"node {deep!r} lies more than {MAX_DEPTH} levels deep")
    if branches.form == "lines":
        paths = dict(sorted(paths.items()))
    ordered = {leaf: paths[leaf] for leaf in in_order_of_numbers(paths)}
    if list(ordered) != list(paths):
        notes.append("the classes are whole numbers, in their order")
    nodes = number_nodes(ordered.values())
    parents = set(nodes.parents)
    inner = {leaf for leaf, chain in zip(ordered, nodes.chains, strict=True) if chain[-1] in parents}
    if inner and options.inner == "error":
        first = next(leaf for leaf in ordered if leaf in inner)
        problem = f"class {first!r} is also a parent" + f", and {len(inner) - 1:,} more are" * (len(inner) > 1)
        leaf = Argument("inner", "leaf")
        drop = Argument("inner", "drop")
        raise InputError(
            f"{problem}; {leaf} makes a leaf {UNSPECIFIED.format(first)!r} below it, {drop} takes it as a node alone",
            leaf,
            drop,
        )
    if inner and options.inner == "drop":
        notes.append(f"{len(inner):,} of the names are parents, and no classes")
        ordered = {leaf: path for leaf, path in ordered.items() if leaf not in inner}
        nodes = number_nodes(ordered.values())
    elif inner:
        notes.append(f"{len(inner):,} of the classes are also parents: a leaf below each stands for it")
        below = {leaf: UNSPECIFIED.format(leaf) for leaf in inner}
        ordered = {
            below.get(leaf, leaf): (*path, below[leaf]) if leaf in below else path for leaf, path in ordered.items()
        }
        nodes = number_nodes(ordered.values())
    if options.fixes:
        ordered, mended = mend(ordered, options.fixes)
        notes += mended
        nodes = number_nodes(ordered.values())
    findings = find_slips(ordered, branches.num_blanks, options.accepted)
    heading = (f"{name}: {branches.source}", branches.layout)
    about = describe_tree(heading, ordered, nodes, notes)
    return TreeReading(ordered, branches.form, about, nodes, branches.levels, tuple(findings))


def _choose_paths(branches: Branches, options: TreeOptions) -> Paths:
    """Return one path for each class; a ValueError where a class repeats, unless `parents` says which to keep."""
    chosen: Paths = {}
    row_of: dict[str, int] = {}
    for row, path in enumerate(branches.paths):
        leaf = path[-1]
        earlier = chosen.setdefault(leaf, path)
        if row_of.setdefault(leaf, row) == row or (earlier == path and branches.may_repeat):
            continue
        place = f"{branches.places[row]}: " if branches.places else ""
        if earlier == path:
            raise ValueError(f"{place}duplicate class {leaf!r}")
        if options.parents == "error":
            before = f" ({branches.places[row_of[leaf]]})" if branches.places else ""
            keep = Argument("parents", "first")
            join = [] if branches.join is None else [branches.join]
            advice = f"join them to one name with {branches.join}; " if join else ""
            raise InputError(
                f"{place}duplicate class {leaf!r}: {show_path(path)}, and before {show_path(earlier)}{before}; {advice}"
                f"{keep}, shortest or longest keeps one",
                *join,
                keep,
            )
        if options.parents != "first" and (len(path) < len(earlier)) == (options.parents == "shortest"):
            chosen[leaf] = path if len(path) != len(earlier) else earlier
    return chosen


def show_path(path: NodePath) -> str:
    """Return a path for a reader: a > b > c."""
    return " > ".join(one_line(part, MAX_SHOWN) for part in path[:MAX_SHOWN])


def describe_tree(heading: Sequence[str], paths: Paths, nodes: PathNodes, notes: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the reading in lines: a heading, the sizes, the first path, and notes."""
    height = max(map(len, nodes.chains))
    sizes = [
        len({chain[level] if level < len(chain) else chain[-1] for chain in nodes.chains}) for level in range(height)
    ]
    shown = ", ".join(f"{size:,}" for size in sizes[:MAX_SHOWN]) + ", ..." * (height > MAX_SHOWN)
    flat = "; flat: no node is above the classes" if height == 1 else ""
    lines = [
        *heading,
        f"{len(paths):,} classes, height {height}, nodes per level {shown}{flat}",
        f"first path: {show_path(next(iter(paths.values())))}",
        "; ".join(notes),
    ]
    return tuple(one_line(line, 400) for line in lines if line)


def canonical_text(paths: Paths, levels: Sequence[str] = ()) -> str:
    """Return a tree as a .csv: a row per class, coarsest node first, which is read as the same tree.

    `levels` are the names of the levels; by default, or where these alone would not be read so, level 1, level 2, ...

    Raises:
        ValueError: a table cannot hold the tree, as the name of a node means a missing one there.
    """
    text = io.StringIO()
    width = max(map(len, paths.values()))
    writer = csv.writer(text, lineterminator="\n")
    numbered = [f"level {level}" for level in range(1, width + 1)]
    writer.writerow(levels if len(levels) == width else numbered)
    writer.writerows([*path, *[""] * (width - len(path))] for path in paths.values())
    try:
        again = _check(branches_from_text(text.getvalue(), ".csv", DEFAULT_OPTIONS), DEFAULT_OPTIONS, "").paths
    except ValueError:
        again = {}
    if list(again.items()) != list(paths.items()) and levels:
        return canonical_text(paths)
    if list(again.items()) != list(paths.items()):
        raise UserError("a table cannot hold this tree: a name is NA, None or -, or begins or ends with a blank")
    return text.getvalue()


def shipped_names() -> list[str]:
    """Return the names of the trees in benchmarks/hierarchies."""
    files = (resources.files("hierbench.benchmarks") / "hierarchies").iterdir()
    return sorted(file.name.removesuffix(".csv") for file in files if file.name.endswith(".csv"))


def shipped_paths(name: str) -> Paths:
    """Return {class: path} of a tree in benchmarks/hierarchies, in the file's order."""
    file = resources.files("hierbench.benchmarks").joinpath(f"hierarchies/{name}.csv")
    rows = list(csv.reader(file.read_text(encoding="utf-8").splitlines()))[1:]
    paths = [tuple(cell for cell in row if cell) for row in rows]
    return {path[-1]: path for path in paths}
