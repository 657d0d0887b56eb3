"""Aligned columns, markdown, CSV and JSON, and what formats of text share."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hierbench.leaderboard.table import Cell, Flag, Interval, Number, Table, Text
from hierbench.utils.files import as_json_text
from hierbench.utils.text import markdown_escaped, one_line

FORMULA = ("=", "+", "-", "@")  # what a spreadsheet computes if a cell begins with it


@dataclass(frozen=True)
class Style:
    """How a format of text prints a cell; `{}` stands for what is marked."""

    escaped: Callable[[str], str]
    strong: str = "{}"
    letters: str = " {}"
    star: str = " *"

    def shown(self, cell: Cell) -> str:
        """Return a cell as text."""
        if isinstance(cell, Flag):
            return self.escaped(cell.text)
        if isinstance(cell, Text):
            text = self.escaped(cell.text) + (self.star if cell.star else "")
        else:
            text = self.escaped(number_text(cell))  # the sign of a share
            if isinstance(cell, Interval):
                text = self.strong.format(text) if cell.strong else text
                text += self.letters.format(cell.letters) if cell.letters else ""
        return f"{text} ({self.escaped(cell.small)})" if cell.small else text

    def lines(self, table: Table) -> list[list[str]]:
        """Return the cells of all rows as text."""
        return [[self.shown(cell) for cell in line.cells] for line in table.rows]


def number_text(cell: Number | Interval) -> str:
    """Return a number as all formats of text print it, "-" for one that is undefined."""
    if isinstance(cell, Number):
        return "-" if cell.value is None or math.isnan(cell.value) else f"{cell.value:{cell.form}}"
    return cell.printed_mean if cell.mean is None else f"{cell.printed_mean} {cell.spread('+/- ')}"


def legend_lines(table: Table, star: str, bold: str) -> list[str]:
    """Return the line that says what the marks are, which each format prints in its own way."""
    meanings = [f"{mark}{meaning}." for mark, meaning in ((star, table.star), (bold, table.bold)) if mark and meaning]
    return [" ".join(meanings)] if meanings else []


def terminal(table: Table) -> str:
    """Return aligned columns without lines, to read in a terminal."""
    return _text(table, Style(one_line), "plain" if not table.notes else "simple", "* ", "")


def markdown(table: Table) -> str:
    """Return a pipe table with sentences around it; what markdown would act upon is escaped."""
    return _text(table, Style(markdown_escaped, "**{}**"), "pipe", r"\* ", "**Bold**: ")


def _text(table: Table, style: Style, form: str, star: str, bold: str) -> str:
    from tabulate import tabulate

    heads = [style.escaped(text) for text in table.columns]
    parts = [list(map(style.escaped, table.above))]
    if table.rows:
        parts.append([tabulate(style.lines(table), heads, tablefmt=form, disable_numparse=True)])
    notes = list(map(style.escaped, table.notes))
    parts.append([*notes[:1], *legend_lines(table, star, bold), *notes[1:]])
    parts.append([f"- {style.escaped(text)}" for text in table.items])
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def as_csv(table: Table) -> str:
    """Return the records with their keys as header, numbers at full precision, nothing for None."""
    records, text = table.as_records(), io.StringIO()
    names = list(records[0]) if records else table.keys or [column.rstrip(" ↑↓") for column in table.columns]
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _plain(value) for name, value in record.items()} for record in records)
    return text.getvalue()


def _plain(value: Any) -> Any:
    """Return a value that no spreadsheet computes: an apostrophe stands before text that begins like a formula."""
    if isinstance(value, list | tuple):
        return " ".join(map(str, value))
    if not isinstance(value, str) or not value.startswith(FORMULA):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value


def as_json(table: Table) -> str:
    """Return what the table holds; NaN becomes null."""
    content = {"rows": table.as_records()} if table.content is None else table.content
    return as_json_text({"schema": 1, **content})
