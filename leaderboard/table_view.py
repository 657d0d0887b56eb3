"""A table as its reader wants it: rows chosen and sorted, columns chosen, other marks, a caption and a label."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from hierbench.leaderboard.table import Cell, Interval, Line, Number, Table, Text
from hierbench.utils.errors import nearest, unknown_name

Bold = Literal["competitive", "best", "none"]
HEADING_ARROWS = " ↑↓"


def choose_rows(table: Table, choice: str) -> Table:
    """Return the first rows of a table, for a number, or those with one of these words in their text, by commas.

    Raises:
        UserError: a word is in no row.
    """
    if choice.isdecimal():
        return _with_rows(table, list(range(len(table.rows)))[: int(choice)])
    texts = [[cell.text.casefold() for cell in line.cells if isinstance(cell, Text)] for line in table.rows]
    keys = table.records if table.records is not None and len(table.records) == len(table.rows) else [{}] * len(texts)
    for row, record in enumerate(keys):
        texts[row] += [str(record.get("method", "")).casefold()]
    chosen = set[int]()
    for word in (part.strip().casefold() for part in choice.split(",")):
        exact = {row for row, parts in enumerate(texts) if word in parts}
        matching = exact or {row for row, parts in enumerate(texts) if any(word in part for part in parts)}
        if not matching:
            raise unknown_name("row", word, sorted({part for parts in texts for part in parts if part}))
        chosen |= matching
    return _with_rows(table, sorted(chosen))


def sort_rows(table: Table, heading: str) -> Table:
    """Return the rows in the order of a column, best first where its heading has an arrow.

    Raises:
        UserError: there is no such column.
    """
    (place,) = find_columns(table, heading)
    numbers = table.numeric[place]
    reverse = numbers and table.columns[place].endswith("↑")

    def key(row: int) -> tuple[bool, float, str]:
        cell = table.rows[row].cells[place]
        value = cell.mean if isinstance(cell, Interval) else cell.value if isinstance(cell, Number) else None
        missing = value is None or value != value
        return missing, 0.0 if value is None or missing else (-value if reverse else value), _text(cell)

    return replace(_with_rows(table, sorted(range(len(table.rows)), key=key)), merged=0)


def choose_columns(table: Table, headings: str) -> Table:
    """Return the columns of these headings, in this order, after the columns that name the rows."""
    places = [*range(max(table.merged, 1) + 1)]
    places += [place for place in find_columns(table, headings) if place not in places]
    lines = [replace(line, cells=[line.cells[place] for place in places]) for line in table.rows]
    return replace(table, columns=[table.columns[place] for place in places], rows=lines)


def find_columns(table: Table, headings: str) -> list[int]:
    """Return the places of columns by their headings, or parts of these, separated by commas."""
    names = [_plain(column) for column in table.columns]
    places = []
    for heading in headings.split(","):
        plain = _plain(heading)
        matching = [place for place, name in enumerate(names) if name == plain]
        matching = matching or [place for place, name in enumerate(names) if plain in name]
        if not matching:
            choices = [column.rstrip(HEADING_ARROWS) for column in table.columns]
            raise unknown_name("column", heading.strip(), choices, nearest(heading, choices))
        places.append(matching[0])
    return places


def _plain(heading: str) -> str:
    """Return the letters and digits of a heading: "top1" is in that of Top-1 accuracy."""
    return "".join(char for char in heading.casefold() if char.isalnum())


def mark(table: Table, bold: Bold) -> Table:
    """Return the table with the best number of each column in bold, of all rows or of none, and no other marks."""
    if bold == "competitive":
        return table
    best = [_best(table, place) if bold == "best" else set() for place in range(len(table.columns))]
    lines = [
        replace(line, cells=[_marked(cell, row in best[place]) for place, cell in enumerate(line.cells)])
        for row, line in enumerate(table.rows)
    ]
    bold_words = "best of all rows" if bold == "best" else ""
    return replace(table, rows=lines, star="", bold=bold_words, underline="")


def _best(table: Table, place: int) -> set[int]:
    """Return the rows with the best number of a column: underlined numbers, else bold ones."""
    cells = [line.cells[place] for line in table.rows]
    leading = {row for row, cell in enumerate(cells) if isinstance(cell, Interval) and cell.underlined}
    return leading or {row for row, cell in enumerate(cells) if isinstance(cell, Interval) and cell.strong}


def _marked(cell: Cell, strong: bool) -> Cell:
    if isinstance(cell, Interval):
        return replace(cell, strong=strong, underlined=False)
    return replace(cell, star=False) if isinstance(cell, Text) else cell


def _with_rows(table: Table, rows: Sequence[int]) -> Table:
    lines: list[Line] = [table.rows[row] for row in rows]
    records = table.records
    if records is not None and len(records) == len(table.rows):
        records = [records[row] for row in rows]
    return replace(table, rows=lines, records=records)


def _text(cell: Cell) -> str:
    return cell.text if isinstance(cell, Text) else str(cell)
