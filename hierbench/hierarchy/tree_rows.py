"""Rows of a table that are paths, edges, or ids with their parents' ids."""

import re
from collections.abc import Sequence
from dataclasses import replace

from hierbench.hierarchy.node_paths import WHOLE_NUMBER, Branches, paths_from_edges
from hierbench.hierarchy.tree_columns import (
    NAME_COLUMNS,
    PARENT,
    LeftOut,
    joined_columns,
    order_rows,
    rank_columns,
    reason_against,
)
from hierbench.hierarchy.tree_options import TreeOptions
from hierbench.hierarchy.tree_table import TreeTable
from hierbench.hierarchy.tree_text import paths_and_classes, split_paths
from hierbench.utils.errors import Argument, InputError

EDGES_FORM = Argument("form", "edges")
PATHS_FORM = Argument("form", "paths")
IDS_FORM = Argument("form", "ids")
ROOTS = frozenset(("-1", "0"))  # parents that are no node, where no node has this name
LOWER_END = re.compile(r"child.*|node|hyponym|target")
CHILD = re.compile(rf"{LOWER_END.pattern}|concept|synset|term|taxon|wnid|.*id|key|.*code|name|label|class")


def branches_from_table(table: TreeTable, options: TreeOptions) -> Branches:
    """Return the paths of a table; see `Hierarchy.read`.

    Raises:
        ValueError: its columns are no tree, or can be read in two ways.
    """
    table = table.with_blanks()
    if options.fills and not options.columns:
        table = table.filled()
    titles = [table.title(i) for i in range(table.width)]
    if options.columns:
        selected = table.select(options.choices)
        if options.fills:
            selected = selected.filled()
        dropped = [title for title in titles if title not in options.columns.replace("+", ",").split(",")]
        left_out: tuple[str, ...] = (f"left out: {', '.join(dropped)}",) if dropped and table.header else ()
    else:
        selected = table
        left_out = ()
    if options.form != "paths":
        if options.form == "ids" or (options.form is None and selected.width > 1):
            roles = _id_roles(selected, options)
            if roles is not None:
                return _branches_of_ids(selected, roles, options, left_out)
        if not options.columns and selected.width > 2:
            selected, left_out = _two_ends(selected)
        if options.form == "edges" or (options.form is None and selected.width == 2):
            direction = _edge_direction(selected, options)
            if direction is not None:
                return branches_from_pairs(selected, direction, options, left_out)
    return _branches_of_paths(selected, options, left_out)


def _two_ends(table: TreeTable) -> tuple[TreeTable, tuple[str, ...]]:
    """Return the two columns titled as edges, such as source,target,weight, and the columns left out."""
    words = [table.word(i) for i in range(table.width)]
    ends = [[i for i, word in enumerate(words) if name.fullmatch(word)] for name in (PARENT, LOWER_END)]
    if any(len(pairs_of_end) != 1 for pairs_of_end in ends):
        return table, ()
    kept = [pairs_of_end[0] for pairs_of_end in ends]
    others = ", ".join(table.title(i) for i in range(table.width) if i not in kept)
    return table.select([str(i + 1) for i in kept]), (f"left out: {others}",)


def _branches_of_paths(table: TreeTable, options: TreeOptions, left_out: tuple[str, ...]) -> Branches:
    if not options.columns:
        table, beside = paths_and_classes(table)
        left_out = (*left_out, *beside)
    table, separator = split_paths(table)
    order = order_rows(table, range(table.width))
    if (options.columns and not separator) or (separator and order.is_unique):
        dropped = list[LeftOut]()
        note = ""
    else:
        order, dropped, note = rank_columns(table)
    if not separator and len(order.columns) > 1 and order.columns[0] != table.width - 1:  # where rows may be short
        table.check_coarsest(order.columns[0])
    if () in order.paths:
        place = table.places[order.paths.index(())]
        raise ValueError(f"{place} has no name in {', '.join(map(table.title, order.columns))}")
    if dropped:
        left_out = (*left_out, "left out: " + ", ".join(f"{table.title(i)} ({reason})" for i, reason in dropped))
    num_missing = sum(not row[i] for row in table.rows for i in order.columns)
    finest_first = len(order.columns) > 1 and list(order.columns) == sorted(order.columns, reverse=True)
    layout = f"paths, {'finest first in the file' if finest_first else 'coarsest first'}"
    if separator:
        layout += f", {separator!r} between nodes"
    elif len(order.columns) <= 20:
        layout += f": {' > '.join(('column ' if not table.header else '') + table.title(i) for i in order.columns)}"
    notes = [*left_out, note, f"{num_missing:,} cells without a node" if num_missing else ""]
    return Branches(
        order.paths,
        "paths",
        table.source,
        layout,
        tuple(filter(None, notes)),
        table.places,
        joined_columns(table, order),
        may_repeat=bool(dropped or options.columns),
        levels=tuple(map(table.title, order.columns)) if table.header and not separator else (),
        num_blanks=0 if separator else sum(not cell for cell in table.column(order.columns[0])),
    )


def _id_roles(table: TreeTable, options: TreeOptions) -> tuple[int, int, int | None] | None:
    """Return the columns of ids, of their parents' ids, and of names or None; None where there are none."""
    width = table.width
    values = [cells - {""} for cells in table.values]
    columns = [i for i in range(width) if values[i]]
    unique = [i for i in columns if len(values[i]) == len(table.rows)]
    named_parents = [i for i in columns if PARENT.fullmatch(table.word(i))] if table.header else []
    pairs = [
        (node, above)
        for above in (named_parents or columns)
        for node in unique
        if node != above and (values[above] - ROOTS) <= values[node] and values[above] - ROOTS
    ]
    if (named_parents and not pairs) or (table.header and not named_parents and options.form != "ids"):
        return None
    if not named_parents:
        pairs = (
            [pair for pair in pairs if _looks_like_ids(table, pair, values)]
            if width > 2 or options.form == "ids"
            else []
        )
    if options.form == "ids" and not pairs:
        if width not in (2, 3):
            choice = Argument("columns", "PARENT,ID,NAME")
            raise InputError(f"it has no column of ids that another column holds as parents; give {choice}", choice)
        pairs = [(1, 0)]
    if not pairs:
        return None
    pairs.sort(key=lambda pair: not table.word(pair[0]).endswith(("id", "key")))
    node, above = pairs[0]
    rest = [i for i in columns if i not in (node, above, *named_parents)]
    names = [i for name in NAME_COLUMNS for i in rest if table.word(i) == name]
    others = [  # in which most names differ; unless they were chosen, of ids, and nothing that is no name
        i
        for i in rest
        if 5 * len(values[i]) > 4 * len(table.rows)
        and (options.columns or (not reason_against(table, i) and table.word(node) not in NAME_COLUMNS))
    ]
    if not names and len(others) > 1:
        choices = [table.choice((above, node, i)) for i in others[:2]]
        text = " or ".join(map(str, choices))
        raise InputError(f"the names of its nodes may be in several columns: {text}", *choices)
    return node, above, next(iter([*names, *others]), None)


def _looks_like_ids(table: TreeTable, pair: tuple[int, int], values: Sequence[frozenset[str]]) -> bool:
    """Whether a column without a name holds the parents of another: in it a root has none, or no path is possible.

    Raises:
        ValueError: both are whole numbers counted from the same start, so that they can be levels as well.
    """
    node, above = pair
    cells = list(zip(table.column(node), table.column(above), strict=True))
    has_root = any(not parent or (parent in ROOTS and parent not in values[node]) for _, parent in cells)
    if has_root:
        return True
    is_rooted = any(parent == child for child, parent in cells)
    if not is_rooted or not table.is_numeric(above):
        return False
    others = [i for i in range(table.width) if i not in pair]
    if all(table.is_numeric(i) for i in others):
        return False
    if not any(len(values[i]) == len(table.rows) for i in others):  # no column of names
        return True
    raise InputError(
        f"it can be read in two ways, as nodes with their parents' numbers ({IDS_FORM}) or as paths ({PATHS_FORM}): "
        f"is {table.title(above)!r} a level?",
        IDS_FORM,
        PATHS_FORM,
    )


def _branches_of_ids(
    table: TreeTable, roles: tuple[int, int, int | None], options: TreeOptions, left_out: tuple[str, ...]
) -> Branches:
    node, above, name = roles
    ids = table.column(node)
    names = ids if name is None else [cell or i for cell, i in zip(table.column(name), ids, strict=True)]
    edges = list(zip(table.column(above), ids, strict=True))
    titles = [table.title(i) for i in (node, above)] + ([] if name is None else [table.title(name)])
    layout = f"ids {titles[0]} with their parents in {titles[1]}, " + (
        f"names {titles[2]}" if name is not None else "no names"
    )
    used = {i for i in roles if i is not None}
    others = [table.title(i) for i in range(table.width) if i not in used]
    if others and not left_out:
        left_out = (f"left out: {', '.join(others[:20])}",)
    paths, note = paths_from_edges(without_roots(edges), dict(zip(ids, names, strict=True)), options.parents)
    join = None if name is None else Argument("columns", f"{titles[1]},{titles[0]},{titles[-1]}+COLUMN")
    return Branches(paths, "edges", table.source, layout, tuple(filter(None, (*left_out, note))), (), join)


def without_roots(edges: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return (parent, child) with "" for a parent that is none: missing, the node itself, or -1 or 0 without a row."""
    children = {child for _, child in edges}
    return [
        ("" if above == child or (above in ROOTS and above not in children) else above, child) for above, child in edges
    ]


def branches_from_lines(pairs: Sequence[tuple[str, str]], options: TreeOptions) -> Branches:
    """Return the paths of `parent child` lines, or `child parent`; without a name on both sides they are paths."""
    table = TreeTable(
        None, [list(pair) for pair in pairs], [f"line {i}" for i in range(len(pairs))], "lines of two words"
    )
    if any(all(map(WHOLE_NUMBER.fullmatch, side)) for side in zip(*pairs, strict=True)) and not table.is_numeric(0):
        raise ValueError("its lines are names with numbers, not 'parent child'")
    parents = {above for above, child in pairs if above != child}
    children = {child for above, child in pairs if above != child}
    if options.form == "paths" or (not parents & children and min(len(parents), len(children)) > 1):
        return branches_from_table(table, options)
    is_down = _num_defects(pairs) <= _num_defects([(child, above) for above, child in pairs])
    return replace(branches_from_pairs(table, (0, 1) if is_down else (1, 0), options, ()), form="lines")


def _edge_direction(table: TreeTable, options: TreeOptions) -> tuple[int, int] | None:
    """Return the columns of parents and of children of a table of edges, None where its two columns are paths."""
    if options.form == "edges" and table.width != 2:
        choice = Argument("columns", "PARENT,CHILD")
        raise InputError(f"edges have two columns; give {choice}", choice)
    rows = [(row[0], row[1]) for row in table.rows]
    words = [table.word(0), table.word(1)]
    named = [i for i, word in enumerate(words) if PARENT.fullmatch(word)]
    if len(named) == 1 and CHILD.fullmatch(words[1 - named[0]]):
        return named[0], 1 - named[0]
    children, right = ([row[side] for row in rows if row[0] != row[1] and row[side]] for side in (0, 1))
    if options.form is None and not set(children) & set(right):
        return None
    down = _num_defects(rows)
    up = _num_defects([(child, above) for above, child in rows])
    if options.columns and options.form == "edges":
        return 0, 1
    is_path = len(set(right)) == len(right) and len(table.values[1]) == len(rows)
    if down == up and options.form != "edges" and is_path:
        return None
    if down == up:
        titles = [table.title(0), table.title(1)]
        choices = [Argument("columns", ",".join(names)) for names in (titles, titles[::-1])]
        text = " or ".join(f"{EDGES_FORM} {choice}" for choice in choices)
        raise InputError(f"which column holds the parents? {text}", EDGES_FORM, *choices)
    is_down = down < up
    if options.form is None:
        pairs = without_roots(rows if is_down else [row[::-1] for row in rows])
        _refuse_levels(table, pairs, rows)
    return (0, 1) if is_down else (1, 0)


def _refuse_levels(table: TreeTable, pairs: Sequence[tuple[str, str]], rows: Sequence[tuple[str, str]]) -> None:
    """Raise a ValueError for edges with several undeclared roots, since they may be paths as well."""
    nodes = {child for above, child in pairs if above}
    roots = {above for above, _ in pairs if above} - nodes
    self_parents = {first for first, second in rows if first == second}
    unclear = self_parents | ({"0"} if table.header else set())  # a first class of levels numbered from 0 as well
    says_roots = any(not cell or (cell in ROOTS and cell not in unclear) for row in rows for cell in row)
    unique = any(len(table.values[side]) == len(rows) for side in (0, 1))
    if unique and not says_roots and (len(roots) > 1 or unclear):
        raise InputError(
            f"it can be read in two ways, as edges ({EDGES_FORM}) or as paths ({PATHS_FORM})", EDGES_FORM, PATHS_FORM
        )


def _num_defects(edges: Sequence[tuple[str, str]]) -> int:
    """Return the number of nodes with several parents, more for a cycle or a single leaf."""
    edges = without_roots(edges)
    pairs = {(above, child) for above, child in edges if above}
    num = len(pairs) - len({child for _, child in pairs})
    children = {child for _, child in edges}
    leaves = children - {above for above, _ in pairs}
    return num + (len(leaves) < 2) * len(pairs)


def branches_from_pairs(
    table: TreeTable, direction: tuple[int, int], options: TreeOptions, left_out: tuple[str, ...]
) -> Branches:
    """Return the paths of a table of edges, given the columns of parents and of children."""
    above, child = direction
    rows = [(row[above], row[child]) if row[child] else ("", row[above]) for row in table.rows]
    paths, note = paths_from_edges(without_roots(rows), None, options.parents)
    named = f": {table.title(above)} > {table.title(child)}" if table.header else ""
    layout = f"edges, {'parent, child' if above < child else 'child, parent'}{named}"
    return Branches(paths, "edges", table.source, layout, tuple(filter(None, (*left_out, note))))
