"""Text to the rows and columns of a table, or to lines of two words."""

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import replace

from hierbench.hierarchy.node_paths import MAX_DEPTH, WHOLE_NUMBER, check_size
from hierbench.hierarchy.tree_columns import PARENT, PATH_WORD, is_known_word, is_level_word, reason_against
from hierbench.hierarchy.tree_options import TreeOptions
from hierbench.hierarchy.tree_table import TreeTable, plain_word
from hierbench.utils.errors import Argument, InputError

SEPARATOR = Argument("separator")
CELL_SEPARATORS = {",": "','", ";": "';'", "\t": "tab", "|": "'|'"}
NAME_AND_NUMBER = re.compile(r".*\S\s+\d+")
NUMBERED_PATH = re.compile(r"(?:\d+|gid:\S+)\s+[-:]\s+(.*)")
BULLETS = ("-", "*", "+", "\u2022")
PATH_SEPARATORS = (" > ", " -> ", " / ", " :: ", "->", "::", ">", "/", "\\", "|", ";")


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
    lines = [line for line in text.splitlines() if line.strip() and line.lstrip()[0] != "#"]
    if not lines:
        raise ValueError("the file is empty")
    check_size(max(4 * text.count("\n"), *map(text.count, CELL_SEPARATORS)))
    separator = options.separator.replace("\\t", "\t").replace("tab", "\t") or _separator(lines, suffix)
    if separator == " ":
        return _pairs(text)
    if len(separator) != 1:
        raise InputError(f"{SEPARATOR} must be one character, got {separator!r}", SEPARATOR)
    rows = list[tuple[int, list[str]]]()
    for number, cells in enumerate(csv.reader(io.StringIO(text, newline=""), delimiter=separator), 1):
        row = [cell.strip() for cell in cells]
        if len(row) > MAX_DEPTH:
            raise ValueError(f"line {number} has more than {MAX_DEPTH} columns")
        if (
            row and row[0][:1] != "#" and any(cell.strip(":-") for cell in row)
        ):  # Markdown has a line of dashes below its header
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
    return f"table of {width} columns, separator {CELL_SEPARATORS.get(separator, repr(separator))}"


def _separator(lines: Sequence[str], suffix: str) -> str:
    """Return the separator of the columns; a blank for lines of two words, as `parent child`."""
    everywhere = [sep for sep in CELL_SEPARATORS if all(sep in line for line in lines)]
    if suffix in (".csv", ".tsv"):
        first = "\t" if suffix == ".tsv" else ","
        if first in everywhere or not everywhere:
            several = [sep for sep in everywhere if sep != first and len({line.count(sep) for line in lines}) == 1]
            if several and len({line.count(first) for line in lines}) > 1:
                shown = " or ".join(CELL_SEPARATORS[sep] for sep in (first, several[0]))
                raise InputError(f"its separator may be {shown}: give {SEPARATOR}", SEPARATOR)
            return max(
                [first, *CELL_SEPARATORS], key=lambda sep: sum(sep in line for line in lines)
            )  # of equals the first
    if everywhere == ["\t", "|"]:  # NCBI writes both
        return "|"
    if len(everywhere) > 1:
        steady = [sep for sep in everywhere if len({line.count(sep) for line in lines}) == 1]
        if len(steady) != 1:
            shown = " or ".join(map(CELL_SEPARATORS.__getitem__, everywhere))
            raise InputError(f"its separator may be {shown}: give {SEPARATOR}", SEPARATOR)
        return steady[0]
    if everywhere:
        return everywhere[0]
    has_paths = any(2 * sum(sep in line for line in lines) > len(lines) for sep in PATH_SEPARATORS)
    if suffix not in (".csv", ".tsv") and not (has_paths and not _are_linked(lines)):
        return " "
    return "\x1f"  # which text does not have: one column


def _are_linked(lines: Sequence[str]) -> bool:
    """Whether lines are pairs of words, and some word is first in one line and second in another."""
    pairs = [line.split() for line in lines]
    if any(len(pair) != 2 for pair in pairs):
        return False
    first = {pair[0] for pair in pairs}
    second = {pair[1] for pair in pairs}
    return not first.isdisjoint(second) or len(first) == 1 or len(second) == 1


def _pairs(text: str) -> list[tuple[str, str]]:
    pairs = []
    for number, line in enumerate(text.splitlines(), 1):
        fields = line.split()
        if not fields or fields[0].startswith("#"):
            continue
        if line[0].isspace() or fields[0] in BULLETS:
            raise ValueError(f"line {number} is indented or an item of a list; write a whole path on each line, a/b/c")
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
    again = [bool(cell) and cell in column for cell, column in zip(first, below, strict=True)]
    levels = [is_level_word(plain_word(cell)) and not seen for cell, seen in zip(first, again, strict=True)]
    if any(again):  # a flag may have the name of its column: seen, unseen
        return sum(levels) > 1
    if any(separator in cell for cell in first for separator in PATH_SEPARATORS):
        return False
    if any(is_known_word(word) or PARENT.fullmatch(word) for word in map(plain_word, first)):
        return True
    numbered = sum(WHOLE_NUMBER.fullmatch(cell) is not None for cell in first)
    if width == 1 or 0 < numbered < width or any(WHOLE_NUMBER.fullmatch(cell) for row in others for cell in row):
        return False
    in_order = Argument("columns", ",".join(first))
    by_number = Argument("columns", ",".join(str(i + 1) for i in range(width)))
    raise InputError(
        f"its first line may be a header or a class: give {in_order} in the order of the levels, or {by_number}",
        in_order,
        by_number,
    )


def paths_and_classes(table: TreeTable) -> tuple[TreeTable, tuple[str, ...]]:
    """Return the columns of whole paths and of the classes beside them, where the header names the paths.

    Columns that can be no level are left out, if the paths differ in every row, and said so; else the table is returned
    as it is.
    """
    columns = [i for i in range(table.width) if PATH_WORD.fullmatch(table.word(i))]
    if len(columns) != 1 or not table.is_unique(columns[0]) or not _separator_in(table.column(columns[0])):
        return table, ()
    reasons = {i: reason_against(table, i) for i in range(table.width) if i != columns[0]}
    classes = [i for i, reason in reasons.items() if not reason]
    if len(classes) > 1 or len(classes) == len(reasons):
        return table, ()
    left_out = ", ".join(f"{table.title(i)} ({reason})" for i, reason in reasons.items() if reason)
    return table.select([str(i + 1) for i in (*classes, *columns)]), (f"left out: {left_out}",)


def split_paths(table: TreeTable) -> tuple[TreeTable, str]:
    """Return a table in which one column held whole paths, as a/b/c, with a column per level, and the separator.

    A second column has the classes, unless they end or begin the paths.
    """
    if table.width > 2:
        return table, ""
    if table.width == 1:
        lines = table.column(0)
        if len(lines) > 1 and all(map(NAME_AND_NUMBER.fullmatch, lines)):
            raise ValueError("its lines are names with numbers, not paths")
        numbered = [NUMBERED_PATH.fullmatch(line) for line in lines]
        if all(numbered):  # as product taxonomies are: 12 - Pets > Food
            table = replace(table, rows=[[match[1]] for match in numbered if match])
    for column in reversed(range(table.width)):
        names = [""] * len(table.rows) if table.width == 1 else table.column(1 - column)
        separator = _separator_in(table.column(column), names)
        if not separator:
            continue
        rows = list[list[str]]()
        for cell, name in zip(table.column(column), names, strict=True):
            parts = [part for part in map(str.strip, cell.split(separator)) if part]
            is_ending = not name or name in (*parts[:1], *parts[-1:]) or WHOLE_NUMBER.fullmatch(name)
            rows.append(parts if is_ending else [*parts, name])
        width = max(1, *map(len, rows))
        check_size(width * len(rows), width)
        padded = [row + [""] * (width - len(row)) for row in rows]
        return TreeTable(None, padded, table.places, table.source), separator
    return table, ""


def _separator_in(cells: Sequence[str], names: Sequence[str] = ()) -> str:
    """Return what separates the nodes of at least half of the cells, and is in no name; "" if nothing does."""
    for separator in PATH_SEPARATORS:
        if 2 * sum(separator in cell for cell in cells) >= len(cells) and not any(separator in name for name in names):
            return separator
    return ""
