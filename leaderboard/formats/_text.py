"""Shared by the text formats: the text of a cell, and a table with sentences around it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hierbench.leaderboard.table import COMPARISON_ARROWS, Cell, Flag, Interval, Table, Text


@dataclass(frozen=True)
class Style:
    """How a text format prints a cell; `{}` stands for the marked text."""

    escaped: Callable[[str], str]
    strong: str = "{}"
    underlined: str = "{}"
    arrow: str = " {}"
    star: str = " *"

    def shown(self, cell: Cell) -> str:
        """Return a cell as text."""
        if isinstance(cell, Flag):
            return self.escaped(cell.text)
        if isinstance(cell, Text):
            text = self.escaped(cell.text) + (self.star if cell.star else "")
        else:
            text = self.escaped(str(cell))  # the sign of a share
            if isinstance(cell, Interval):
                text = self.strong.format(text) if cell.strong else text
                text = self.underlined.format(text) if cell.underlined else text
                text += self.arrow.format(COMPARISON_ARROWS[cell.versus]) if cell.versus else ""
        return f"{text} ({self.escaped(cell.small)})" if cell.small else text

    def lines(self, table: Table) -> list[list[str]]:
        """Return the cells of all rows as text."""
        return [[self.shown(cell) for cell in line.cells] for line in table.rows]


def legend_lines(table: Table, star: str, bold: str, underline: str) -> list[str]:
    """Return the line that explains the marks, which each format prints in its own way."""
    arrows = f"{COMPARISON_ARROWS['better']} better, {COMPARISON_ARROWS['worse']} "
    marks = (
        (star, table.star),
        (bold, table.bold),
        (underline, table.underline),
        (arrows, table.arrows),
    )
    meanings = [f"{mark}{meaning}." for mark, meaning in marks if mark and meaning]
    return [" ".join(meanings)] if meanings else []


def tabulate_table(table: Table, style: Style, form: str, star: str, bold: str, underline: str) -> str:
    """Return a table as tabulate's `form` has it; `star`, `bold` and `underline` stand before their meaning."""
    from tabulate import tabulate

    heads = [style.escaped(text) for text in table.columns]
    parts = [list(map(style.escaped, table.above))]
    if table.rows:
        parts.append([tabulate(style.lines(table), heads, tablefmt=form, disable_numparse=True)])
    notes = list(map(style.escaped, table.notes))
    parts.append([*notes[:1], *legend_lines(table, star, bold, underline), *notes[1:]])
    parts.append([f"- {style.escaped(text)}" for text in table.items])
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"
