"""Trees of nested objects: lists of children, keys above keys, and the brackets of Newick."""

import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from hierbench.hierarchy.node_paths import Branches, NodePath, check_size, paths_from_edges
from hierbench.hierarchy.tree_options import TreeOptions
from hierbench.utils.errors import Argument, InputError
from hierbench.utils.text import one_line

NAME_AND_CHILDREN = Argument("columns", "NAME,CHILDREN")
CHILDREN = ("children", "subcategory", "subcategories", "subclasses", "nodes", "items", "child")
NAME_KEYS = ("name", "labelname", "label", "title", "id", "text", "key")
Item = TypeVar("Item")


def children_key(item: Mapping[str, Any]) -> str | None:
    """Return the key of a node's children: a list of objects, or a list of names under a usual name."""
    lists = [key for key, value in item.items() if isinstance(value, list) and value]
    objects = [key for key in lists if all(isinstance(child, Mapping) for child in item[key])]
    named = [key for key in lists if str(key).casefold() in CHILDREN and _name_key(item, key)]
    usual = [key for key in objects if str(key).casefold() in CHILDREN]
    return next(iter([*usual, *named, *objects]), None)


def _name_key(item: Mapping[str, Any], children: str) -> str | None:
    texts = [key for key, value in item.items() if isinstance(value, str | int) and key != children]
    usual = [key for name in NAME_KEYS for key in texts if str(key).casefold() == name]
    return next(iter([*usual, *texts]), None)


def branches_of_objects(items: Sequence[Mapping[str, Any]], options: TreeOptions, before: str) -> Branches:
    """Return the paths of nested objects with a name and a list of children; several objects are below a root."""
    first = next(item for item in items if children_key(item))
    if options.columns:
        if len(options.choices) != 2:
            raise InputError(f"nested objects have two keys, {NAME_AND_CHILDREN}", NAME_AND_CHILDREN)
        name, children = options.choices
    else:
        children = str(children_key(first))
        name = _name_key(first, children) or ""
    if not any(name in item for item in items):
        message = f"its objects have no name beside {children!r}; give {NAME_AND_CHILDREN}"
        raise InputError(message, NAME_AND_CHILDREN)
    others = dict[str, None]()

    def name_of(item: Any, above: NodePath) -> str:
        text = plain_text(item.get(name)) if isinstance(item, Mapping) else plain_text(item)
        if not text:
            raise ValueError(f"an object below {above[-1] if above else 'the root'!r} has no {name!r}")
        return text

    def below(item: Any) -> list[Any]:
        if not isinstance(item, Mapping):
            return []
        others.update(dict.fromkeys(key for key in item if key not in (name, children)))
        below_item = item.get(children) or []
        return below_item if isinstance(below_item, list) else [below_item]

    paths = _leaf_paths(items if len(items) > 1 else below(items[0]), name_of, below)
    notes = (f"left out: {', '.join(list(others)[:20])}",) if others else ()
    layout = f"names in {name}, children in {children}"
    return _from_occurrences(paths, options, f"{before}nested objects", layout, notes)


def branches_of_keys(source: Mapping[str, Any], options: TreeOptions, before: str) -> Branches:
    """Return the paths of keys above keys, or above lists of names; null, "" and {} end a path."""

    def below(entry: tuple[Any, Any]) -> list[tuple[Any, Any]]:
        value = entry[1]
        if isinstance(value, Mapping):
            return _entries(value)
        if isinstance(value, list | tuple):
            if any(isinstance(part, list | tuple) for part in value):
                raise ValueError(f"{plain_text(entry[0])!r} has lists in a list, which are no names")
            parts = [_entries(part) if isinstance(part, Mapping) else [(part, None)] for part in value]
            return [pair for part in parts for pair in part]
        return [(value, None)] if isinstance(value, str) and value else []

    paths = _leaf_paths(_entries(source), lambda entry, above: plain_text(entry[0]), below)
    return _from_occurrences(paths, options, f"{before}nested objects", "names as keys", ())


def _entries(item: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return the keys and values of an object; a ValueError for a value beside keys with others below them."""
    if any(isinstance(value, Mapping | list) and value for value in item.values()):
        for key, value in item.items():
            if isinstance(value, str | int | float) and value != "":
                raise ValueError(
                    f"{key!r} has the value {one_line(str(value), 30)!r} beside keys with names below them: leave it "
                    "out, or write null for a class"
                )
    return list(item.items())


def branches_of_newick(text: str) -> Branches:
    """Return the paths of Newick; an inner node without a name of its own gets a number."""
    from Bio.Phylo.NewickIO import NewickError, Parser

    try:
        trees = list(Parser(io.StringIO(text)).parse())
    except (NewickError, ValueError, IndexError) as error:
        raise ValueError(f"it is not Newick: {error}") from None
    if len(trees) != 1:
        raise ValueError(f"it holds {len(trees)} trees, not one")
    ignored = dict[str, None]()
    seen = set[str]()
    unnamed = list[str]()

    def name_of(clade: Any, above: NodePath) -> str:
        name = (clade.name or "").strip()
        if clade.clades and (not name or name.replace(".", "").isdecimal() or name in seen):
            name = f"node {len(unnamed) + 1}"
            unnamed.append(name)
        if not name:
            raise ValueError(f"a leaf below {above[-1] if above else 'the root'!r} has no name")
        seen.add(name)
        return name

    def below(clade: Any) -> list[Any]:
        words = (("lengths", clade.branch_length), ("comments", clade.comment))
        ignored.update(dict.fromkeys(word for word, value in words if value is not None))
        return clade.clades  # type: ignore[no-any-return]

    paths = _leaf_paths(below(trees[0].root), name_of, below)
    notes = [f"{' and '.join(sorted(ignored, reverse=True))} ignored"] if ignored else []
    notes += [f"{len(unnamed):,} nodes have no name of their own, and a number"] if unnamed else []
    return Branches(paths, "paths", "Newick", "nested brackets", tuple(notes))


def _leaf_paths(
    tops: Sequence[Item], name_of: Callable[[Item, NodePath], str], below: Callable[[Item], Sequence[Item]]
) -> list[NodePath]:
    """Return the path of each item that has none below it, in their order; `name_of` is given the path above."""
    paths = list[NodePath]()
    num_cells = 0
    stack: list[tuple[Item, NodePath]] = [(item, ()) for item in reversed(tops)]
    while stack:
        item, above = stack.pop()
        path = (*above, name_of(item, above))
        num_cells += len(path)
        check_size(num_cells, len(path))
        children = below(item)
        stack.extend((child, path) for child in reversed(children))
        if not children:
            paths.append(path)
    return paths


def _from_occurrences(
    paths: Sequence[NodePath], options: TreeOptions, source: str, layout: str, notes: tuple[str, ...]
) -> Branches:
    """Return the paths of nested objects; where a class occurs twice, names are nodes, which have several parents."""
    if len({path[-1] for path in paths}) == len(paths):
        return Branches(paths, "paths", source, layout, notes)
    edges: Iterable[tuple[str, str]] = (pair for path in paths for pair in zip(("", *path), path, strict=False))
    edges = list(dict.fromkeys(edges))
    below_root = {node for above, node in edges if not above} & {node for above, node in edges if above}
    edges = [(above, node) for above, node in edges if above or node not in below_root]
    chosen, note = paths_from_edges(edges, None, options.parents)
    tops = {node for above, node in edges if not above}
    if len(tops) == 1:  # it is no root: the objects have one above it
        chosen = [(next(iter(tops)), *path) for path in chosen]
    return Branches(chosen, "edges", source, layout, (*notes, note))


def plain_text(cell: Any) -> str:
    """Return a cell as text, "" for a missing value."""
    if cell is None or cell != cell:
        return ""
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    return str(cell).strip()
