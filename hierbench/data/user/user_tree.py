"""The tree of a user's dataset, and labels compared with its classes."""

import unicodedata
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

from hierbench.data.source import shipped_paths
from hierbench.data.user.listing import MAX_NAMED_FILES
from hierbench.data.user.photographs import GoneError
from hierbench.hierarchy.label_tree import Hierarchy
from hierbench.hierarchy.node_paths import number_nodes
from hierbench.hierarchy.readers import Paths, TreeReading, describe_tree, read_tree, shipped_names
from hierbench.hierarchy.tree_options import DEFAULT_OPTIONS, TreeOptions
from hierbench.utils.errors import UserError
from hierbench.utils.files import read_bytes


def tree_text(tree: str) -> str:
    """Return a file's content, or the name of a shipped tree: both change with the tree."""
    if "/" not in tree:
        return tree
    if not Path(tree).exists():
        raise GoneError(f"no tree {tree}")
    try:
        content = read_bytes(tree, follow=True)
    except OSError as error:
        raise UserError(f"the tree {tree} cannot be read ({error.strerror or error})") from None
    try:
        return content.decode("utf-8-sig")
    except ValueError:
        return sha256(content).hexdigest()


def read_users_tree(tree: str, options: TreeOptions = DEFAULT_OPTIONS) -> TreeReading:
    """Return a tree that is given by its file or, for a shipped one, by name.

    Raises:
        UserError: there is no such tree, or it is not a tree; the error names the line or the node.
    """
    if "/" not in tree:
        if tree not in shipped_names():
            raise UserError(f"the tree {tree} is neither a file nor one that comes with hierbench")
        paths = shipped_paths(tree)
        heading = [f"{tree}: a tree that comes with hierbench"]
        nodes = number_nodes(paths.values())
        return TreeReading(paths, "paths", describe_tree(heading, paths, nodes), nodes)
    if not Path(tree).exists():
        raise GoneError(f"no tree {tree}")
    try:
        reading = read_tree(tree, options)
        Hierarchy.from_paths(reading.paths)
    except OSError as error:
        raise UserError(f"the tree {Path(tree).name} cannot be read ({error.strerror or error})") from None
    except ValueError as error:  # it begins with the file's name
        raise UserError(f"the tree {error}") from None
    return reading


def check_classes(labels: Iterable[str], paths: Paths, tree: str, unit: str = "images") -> None:
    """Raise a UserError that names every class without a leaf in the tree and every leaf without a class."""
    leaves = set(paths)
    classes = set(labels)
    inner = {node for path in paths.values() for node in path[:-1]}
    alike = {_simplify_name(leaf): leaf for leaf in sorted(leaves - classes)}

    def described(label: str) -> str:
        if label in inner:
            return f"{label!r} (an inner node, not a leaf)"
        near = alike.get(_simplify_name(label))
        return repr(label) + (f" (the tree has {near!r})" if near else "")

    problems = [
        f"{singular if len(names) == 1 else f'{len(names):,} {many}'} {', '.join(names[:MAX_NAMED_FILES])}"
        + (f" and {len(names) - MAX_NAMED_FILES:,} more" if len(names) > MAX_NAMED_FILES else "")
        for names, singular, many in (
            ([described(label) for label in sorted(classes - leaves)], "no leaf for class", "classes without a leaf:"),
            ([repr(leaf) for leaf in sorted(leaves - classes)], f"no {unit} for leaf", f"leaves without {unit}:"),
        )
        if names
    ]
    if problems:
        slash = next((leaf for leaf in sorted(leaves - classes) if "/" in leaf), "")
        way = (
            f"; no folder can be named {slash!r}: list the images in a manifest, a .csv of image and label"
            if slash
            else ""
        )
        raise UserError(f"the {unit} do not fit the tree {Path(tree).name}: {'; '.join(problems)}{way}")


def _simplify_name(name: str) -> str:
    """Return a name without easily mistaken differences: case, forms of the same letter, blanks and underscores."""
    return unicodedata.normalize("NFKC", name).casefold().replace("_", " ").replace("-", " ").strip()
