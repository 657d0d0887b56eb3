"""The tree of a user's dataset, and whether its leaves are the classes that have images."""

import csv
import io
import unicodedata
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from hierbench.data.source import shipped_paths
from hierbench.data.user.listing import SEPARATORS, GoneError
from hierbench.hierarchy.readers import edges_from_lines, paths_from_csv, paths_from_edges
from hierbench.hierarchy.tree import Hierarchy
from hierbench.utils.errors import UserError
from hierbench.utils.files import read_text

SHOWN = 100  # names in an error
IDS = "is the first column an id? then remove it"
Paths = dict[str, tuple[str, ...]]  # {class: (coarsest, ..., class)}, in target order


def tree_text(tree: str) -> str:
    """Return a file's content, or the name of a shipped tree: what changes with the tree."""
    if "/" not in tree:
        return tree
    try:
        return read_text(Path(tree), "utf-8-sig", follow=True)
    except FileNotFoundError:
        raise GoneError(f"no tree {tree}") from None
    except OSError as error:
        raise UserError(f"the tree {tree} cannot be read ({error.strerror or error})") from None
    except ValueError as error:
        raise UserError(f"the tree {tree} is not UTF-8 text ({error})") from None


def read_tree(tree: str) -> tuple[Paths, str]:
    """Return the paths of a tree, given by its file or, for a shipped one, by name; and as what it was read.

    Raises:
        UserError: there is no such tree, or it is none; the error names the line or the node.
    """
    text = tree_text(tree)
    if "/" not in tree:
        try:
            return shipped_paths(tree), "paths"
        except FileNotFoundError:
            raise UserError(f"the tree {tree} is neither a file nor one that comes with hierbench") from None
    try:
        if Path(tree).suffix.lower() == ".csv":
            paths, kind = paths_from_csv(text, None)
        else:
            edges, kind = edges_from_lines(text), "edges"
            Hierarchy.from_edges(edges)  # its errors say more
            paths = dict(sorted(paths_from_edges(edges).items()))
        Hierarchy.from_paths(paths)
    except (ValueError, csv.Error) as error:
        raise UserError(f"the tree {tree}: {error}{_questions(text)}") from None
    return paths, kind


def _questions(text: str, is_better: Callable[[Paths], bool] = bool) -> str:
    """Return what explains that a tree's text cannot be read or does not fit, as questions, "" for nothing.

    It is read with other separators and without its first column; `is_better` tells whether these paths fit better.
    """
    for separator, question in {",": "", **SEPARATORS}.items():
        for ids in (False, True):
            with suppress(ValueError, csv.Error):
                rows = [row for row in csv.reader(io.StringIO(text, newline=""), delimiter=separator) if any(row)]
                first = [row[0] for row in rows]
                if max(map(len, rows)) < 2 + ids or (ids and len(set(first)) < len(first)):
                    continue
                changed = io.StringIO()
                csv.writer(changed).writerows(row[ids:] for row in rows)
                paths, _ = paths_from_csv(changed.getvalue(), None)
                Hierarchy.from_paths(paths)
                if is_better(paths):
                    return "".join(f"; {one}" for one in (question, IDS * ids) if one)
    return ""


def check_classes(labels: Iterable[str], paths: Paths, tree: str) -> None:
    """Raise a UserError that names every class without a leaf in the tree and every leaf without a class."""
    leaves, classes = set(paths), set(labels)
    inner = {node for path in paths.values() for node in path[:-1]}
    alike = {_plain(leaf): leaf for leaf in sorted(leaves - classes)}

    def described(label: str) -> str:
        if label in inner:
            return f"{label!r} (an inner node, not a leaf)"
        near = alike.get(_plain(label))
        return repr(label) + (f" (the tree has {near!r})" if near else "")

    problems = [
        f"{one if len(names) == 1 else f'{len(names):,} {many}'} {', '.join(names[:SHOWN])}"
        + (f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else "")
        for names, one, many in (
            ([described(label) for label in sorted(classes - leaves)], "no leaf for class", "classes without a leaf:"),
            ([repr(leaf) for leaf in sorted(leaves - classes)], "no images for leaf", "leaves without images:"),
        )
        if names
    ]
    if problems:
        misfits = len(leaves ^ classes)
        asked = _questions(tree_text(tree), lambda other: len(other.keys() ^ classes) < misfits)
        raise UserError(f"the images do not fit the tree {Path(tree).name}: {'; '.join(problems)}{asked}")


def _plain(name: str) -> str:
    """Return a name without what is easily mistaken: case, forms of the same letter, blanks and underscores."""
    return unicodedata.normalize("NFKC", name).casefold().replace("_", " ").replace("-", " ").strip()
