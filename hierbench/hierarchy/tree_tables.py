"""Tables of a tree: text to rows and columns, and rows that are paths, edges, or ids with their parents' ids."""

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import replace

from hierbench.config.tree_options import TreeOptions
from hierbench.hierarchy.node_paths import DEEPEST, WHOLE_NUMBER, Branches, paths_from_edges
from hierbench.hierarchy.tree_columns import (
    NAMES,
    OTHERS,
    LeftOut,
    TreeTable,
    is_known_word,
    is_numeric,
    join_advice,
    order_rows,
    plain_word,
    rank_columns,
)

MOST_CELLS = 1 << 22
SEPARATORS = {",": "','", ";": "';'", "\t": "tab", "|": "'|'"}
PATH_SEPARATORS = (" > ", " -> ", " / ", " :: ", "->", "::", ">", "/", "\\", "|", ";")
ROOTS = frozenset(("-1", "0"))  # parents that are no node, where no node has this name
PARENT = re.compile(r"parent.*|hypernym|broader|isa|source|up")
LOWER_END = re.compile(r"child.*|node|hyponym|target")
CHILD = re.compile(rf"{LOWER_END.pattern}|concept|synset|term|taxon|wnid|.*id|key|.*code|name|label|class")


def read_rows(
    text: str, options: TreeOptions, suffix: str, header: bool | None = None
) -> TreeTable | list[tuple[str, str]]:
    """Return the table that a text holds, or its `parent child` lines as pairs.

    Raises:
        ValueError: it is empty or too large, or its separator is unclear.
    """
    if re.match(r"sep=.(\r?\n)", text):  # Excel's line that names the separator
        options = replace(options, separator=text[4])
        text = "\n" + text.split("\n", 1)[1]
    lines = [line for line in text.splitlines() if line.strip() and (suffix == ".csv" or line.lstrip()[0] != "#")]
    if not lines:
        raise ValueError("the file is empty")
    if text.count("\n") > MOST_CELLS // 4 or sum(map(text.count, SEPARATORS)) > MOST_CELLS:
        raise ValueError(f"it has more than {MOST_CELLS:,} cells")
    separator = options.separator.replace("\\t", "\t").replace("tab", "\t") or _separator(lines, suffix)
    if separator == " ":
        return _pairs(text)
    if len(separator) != 1:
        raise ValueError(f"--separator must be one character, got {separator!r}")
    rows = list[tuple[int, list[str]]]()
    for number, cells in enumerate(csv.reader(io.StringIO(text, newline=""), delimiter=separator), 1):
        row = [cell.strip() for cell in cells]
        if len(row) > DEEPEST:
            raise ValueError(f"line {number} has more than {DEEPEST} columns")
        if any(cell.strip(":-") for cell in row):  # Markdown has a line of dashes below its header
            rows.append((number, row))
    if not rows:
        raise ValueError("it has no cells")
    width = max(len(row) for _, row in rows)
    if all(len(row) < width or not row[-1] for _, row in rows) and width > 1:  # a separator ends each line
        width -= 1
    table = TreeTable(
        None,
        [(row + [""] * width)[:width] for _, row in rows],
        [f"line {number}" for number, _ in rows],
        describe_table(width, separator),
    )
    return split_header(table, options, header)


def describe_table(width: int, separator: str) -> str:
    """Return the form of a table in words."""
    if width == 1:
        return "table of one column"
    return f"table of {width} columns, separator {SEPARATORS.get(separator, repr(separator))}"


def _separator(lines: Sequence[str], suffix: str) -> str:
    """Return the separator of the columns; a blank for lines of two words, as `parent child`."""
    everywhere = [sep for sep in SEPARATORS if all(sep in line for line in lines)]
    if suffix in (".csv", ".tsv"):
        first = "\t" if suffix == ".tsv" else ","
        if first in everywhere or not everywhere:
            several = [sep for sep in everywhere if sep != first and len({line.count(sep) for line in lines}) == 1]
            if several and len({line.count(first) for line in lines}) > 1:
                shown = " or ".join(SEPARATORS[sep] for sep in (first, several[0]))
                raise ValueError(f"its separator may be {shown}: give --separator")
            return max([first, *SEPARATORS], key=lambda sep: sum(sep in line for line in lines))  # of equals the first
    if everywhere == ["\t", "|"]:  # NCBI writes both
        return "|"
    if len(everywhere) > 1:
        steady = [sep for sep in everywhere if len({line.count(sep) for line in lines}) == 1]
        if len(steady) != 1:
            shown = " or ".join(map(SEPARATORS.__getitem__, everywhere))
            raise ValueError(f"its separator may be {shown}: give --separator")
        return steady[0]
    if everywhere:
        return everywhere[0]
    has_paths = any(2 * sum(sep in line for line in lines) > len(lines) for sep in PATH_SEPARATORS)
    if suffix not in (".csv", ".tsv") and not (has_paths and not _are_linked(lines)):
        return " "
    return "\x1f"  # which text does not have: one column


def _are_linked(lines: Sequence[str]) -> bool:
    """Whether lines are pairs of words, one of which is first in a line and second in another."""
    pairs = [line.split() for line in lines]
    if any(len(pair) != 2 for pair in pairs):
        return False
    first, second = {pair[0] for pair in pairs}, {pair[1] for pair in pairs}
    return not first.isdisjoint(second) or len(first) == 1 or len(second) == 1


def _pairs(text: str) -> list[tuple[str, str]]:
    pairs = []
    for number, line in enumerate(text.splitlines(), 1):
        fields = line.split()
        if not fields or fields[0].startswith("#"):
            continue
        if len(fields) != 2:
            raise ValueError(
                f"line {number} is not 'parent child': {line.strip()!r}; put a tab or a comma between names of "
                "several words"
            )
        pairs.append((fields[0], fields[1]))
    return pairs


def split_header(table: TreeTable, options: TreeOptions, is_header: bool | None = None) -> TreeTable:
    """Return a table whose first row is its header if it looks like one, or if `options` or the caller say so."""
    first, *others = table.rows
    if is_header is None and options.columns:
        names = {part.strip() for choice in options.choices for part in choice.split("+")}
        is_header = not all(name.isdecimal() for name in names) or names <= set(first)
    if is_header is None:
        is_header = _is_header(first, others, table.width)
    if not is_header:
        return table
    if not others:
        raise ValueError("the file has no path below the header")
    names_seen = dict[str, int]()
    titles = list[str]()
    for name in first:
        names_seen[name] = names_seen.get(name, 0) + 1
        titles.append(name if names_seen[name] == 1 else f"{name}.{names_seen[name]}")
    return TreeTable(tuple(titles), others, table.places[1:], f"{table.source}, header")


def _is_header(first: Sequence[str], others: Sequence[Sequence[str]], width: int) -> bool:
    """Whether the first row names columns: it has words for ranks, or no cell that is also in its column below."""
    if not others:
        return False
    numbers = [str(i) for i in range(width)]
    if list(first) in (numbers, ["", *numbers[:-1]]):
        return not all(map(WHOLE_NUMBER.fullmatch, others[0]))  # as pandas writes columns without names
    below = [{row[i] for row in others} for i in range(width)]
    if width == 2:
        below = [below[0] | below[1]] * 2
    if any(cell and cell in column for cell, column in zip(first, below, strict=True)):
        return False
    if any(separator in cell for cell in first for separator in PATH_SEPARATORS):
        return False
    if any(is_known_word(word) or PARENT.fullmatch(word) for word in map(plain_word, first)):
        return True
    if width == 1:
        return any(separator in others[0][0] for separator in PATH_SEPARATORS)
    return not any(map(WHOLE_NUMBER.fullmatch, first))


def branches_from_table(table: TreeTable, options: TreeOptions) -> Branches:
    """Return the paths of a table; see `Hierarchy.read`.

    Raises:
        ValueError: its columns are no tree, or can be read in two ways.
    """
    table = table.with_blanks()
    titles = [table.title(i) for i in range(table.width)]
    if options.columns:
        selected = table.select(options.choices)
        dropped = [title for title in titles if title not in options.columns.replace("+", ",").split(",")]
        left_out: tuple[str, ...] = (f"left out: {', '.join(dropped)}",) if dropped and table.header else ()
    else:
        selected, left_out = table, ()
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
    """Return the two columns whose titles say that they are edges, as source,target,weight, and what is left out."""
    words = [table.word(i) for i in range(table.width)]
    ends = [[i for i, word in enumerate(words) if name.fullmatch(word)] for name in (PARENT, LOWER_END)]
    if any(len(found) != 1 for found in ends):
        return table, ()
    kept = [found[0] for found in ends]
    others = ", ".join(table.title(i) for i in range(table.width) if i not in kept)
    return table.select([str(i + 1) for i in kept]), (f"left out: {others}",)


def _branches_of_paths(table: TreeTable, options: TreeOptions, left_out: tuple[str, ...]) -> Branches:
    table, separator = _split_paths(table)
    if options.columns and not separator:
        order, dropped, note = order_rows(table, range(table.width)), list[LeftOut](), ""
    else:
        order, dropped, note = rank_columns(table)
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
        join_advice(table, order),
        may_repeat=bool(dropped or options.columns),
    )


def _split_paths(table: TreeTable) -> tuple[TreeTable, str]:
    """Return a table in which one column held whole paths, as a/b/c, with a column per level, and the separator."""
    if table.width > 2:
        return table, ""
    for column in reversed(range(table.width)):
        cells = table.column(column)
        for separator in PATH_SEPARATORS:
            if 2 * sum(separator in cell for cell in cells) >= len(cells):
                names = [""] * len(cells) if table.width == 1 else table.column(1 - column)
                if any(separator in name for name in names):
                    continue
                rows = list[list[str]]()
                for cell, name in zip(cells, names, strict=True):
                    parts = [part for part in map(str.strip, cell.split(separator)) if part]
                    is_ending = not name or name in (*parts[:1], *parts[-1:]) or WHOLE_NUMBER.fullmatch(name)
                    rows.append(parts if is_ending else [*parts, name])
                width = max(1, *map(len, rows))
                if width * len(rows) > MOST_CELLS:
                    raise ValueError(f"it has more than {MOST_CELLS:,} cells")
                padded = [row + [""] * (width - len(row)) for row in rows]
                return TreeTable(None, padded, table.places, table.source), separator
    return table, ""


def _id_roles(table: TreeTable, options: TreeOptions) -> tuple[int, int, int | None] | None:
    """Return the columns of ids, of their parents' ids, and of names or None; None where there are none."""
    width = table.width
    columns = [i for i in range(width) if any(table.column(i))]
    values = {i: {cell for cell in table.column(i) if cell} for i in columns}
    unique = [i for i in columns if len(values[i]) == len(table.rows)]
    named_parents = [i for i in columns if PARENT.fullmatch(table.word(i))] if table.header else []
    pairs = [
        (node, above)
        for above in (named_parents or columns)
        for node in unique
        if node != above and (values[above] - ROOTS) <= values[node] and values[above] - ROOTS
    ]
    if named_parents and not pairs:
        return None
    if not named_parents:
        pairs = (
            [pair for pair in pairs if _looks_like_ids(table, pair, values)]
            if width > 2 or options.form == "ids"
            else []
        )
    if options.form == "ids" and not pairs:
        if width not in (2, 3):
            raise ValueError(
                "it has no column of ids that another column holds as parents; give --columns PARENT,ID,NAME"
            )
        pairs = [(1, 0)]
    if not pairs:
        return None
    pairs.sort(key=lambda pair: not table.word(pair[0]).endswith(("id", "key")))
    node, above = pairs[0]
    rest = [i for i in columns if i not in (node, above, *named_parents)]
    names = [i for name in NAMES for i in rest if table.word(i) == name]
    others = [
        i
        for i in rest
        if not is_numeric(table.column(i))
        and 5 * len(values[i]) > 4 * len(table.rows)  # most names differ
        and not OTHERS.fullmatch(table.word(i) or "x")
    ]
    if not names and len(others) > 1:
        choices = " or ".join(f"--columns {','.join(map(table.title, (above, node, i)))}" for i in others[:2])
        raise ValueError(f"the names of its nodes may be in several columns: {choices}")
    return node, above, next(iter([*names, *others]), None)


def _looks_like_ids(table: TreeTable, pair: tuple[int, int], values: dict[int, set[str]]) -> bool:
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
    if not is_rooted or not is_numeric(table.column(above)):
        return False
    others = [i for i in range(table.width) if i not in pair]
    if all(is_numeric(table.column(i)) for i in others):
        return False
    if not any(len(values.get(i, ())) == len(table.rows) for i in others):  # no column of names
        return True
    raise ValueError(
        f"it can be read in two ways, as nodes with their parents' numbers (--form ids) or as paths (--form paths): "
        f"is {table.title(above)!r} a level?"
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
    join = (
        f"join a column to the name, as --columns {titles[1]},{titles[0]},{titles[-1]}+COLUMN; "
        if name is not None
        else ""
    )
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
    parents = {above for above, child in pairs if above != child}
    children = {child for above, child in pairs if above != child}
    if options.form == "paths" or (not parents & children and min(len(parents), len(children)) > 1):
        return branches_from_table(table, options)
    is_down = _num_defects(pairs) <= _num_defects([(child, above) for above, child in pairs])
    return replace(branches_from_pairs(table, (0, 1) if is_down else (1, 0), options, ()), form="lines")


def _edge_direction(table: TreeTable, options: TreeOptions) -> tuple[int, int] | None:
    """Return the columns of parents and of children of a table of edges, None where its two columns are paths."""
    if options.form == "edges" and table.width != 2:
        raise ValueError("edges have two columns; give --columns PARENT,CHILD")
    rows = [(row[0], row[1]) for row in table.rows]
    words = [table.word(0), table.word(1)]
    named = [i for i, word in enumerate(words) if PARENT.fullmatch(word)]
    if len(named) == 1 and CHILD.fullmatch(words[1 - named[0]]):
        return named[0], 1 - named[0]
    children, right = ([row[side] for row in rows if row[0] != row[1] and row[side]] for side in (0, 1))
    if options.form is None and not set(children) & set(right):
        return None
    down, up = _num_defects(rows), _num_defects([(child, above) for above, child in rows])
    if options.columns and options.form == "edges":
        return 0, 1
    is_path = len(set(right)) == len(right) and len(set(table.column(1))) == len(rows)
    if down == up and options.form != "edges" and is_path:
        return None
    if down == up:
        titles = [table.title(0), table.title(1)]
        choices = " or ".join(f"--form edges --columns {first},{second}" for first, second in (titles, titles[::-1]))
        raise ValueError(f"which column holds the parents? {choices}")
    is_down = down < up
    if options.form is None:
        pairs = without_roots(rows if is_down else [row[::-1] for row in rows])
        _refuse_levels(table, pairs, rows)
    return (0, 1) if is_down else (1, 0)


def _refuse_levels(table: TreeTable, pairs: Sequence[tuple[str, str]], rows: Sequence[tuple[str, str]]) -> None:
    """Raise a ValueError for edges with several roots, of which none is said to be one: they may be paths as well."""
    nodes = {child for above, child in pairs if above}
    roots = {above for above, _ in pairs if above} - nodes
    own_parents = {first for first, second in rows if first == second}
    unclear = own_parents | ({"0"} if table.header else set())  # a first class of levels numbered from 0 as well
    says_roots = any(not cell or (cell in ROOTS and cell not in unclear) for row in rows for cell in row)
    unique = any(len(set(table.column(side))) == len(rows) for side in (0, 1))
    if unique and not says_roots and (len(roots) > 1 or unclear):
        raise ValueError("it can be read in two ways, as edges (--form edges) or as paths (--form paths)")


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
