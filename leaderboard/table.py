"""The table that every command prints: columns, rows of typed cells, notes; `leaderboard.formats` renders it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple


@dataclass(frozen=True)
class Text:
    """Words, a name or a count.

    Attributes:
        text: shown verbatim; formats escape it.
        small: a remark in smaller type, or in brackets.
        link: address that a page links the text to, or "".
        star: whether the row is marked with a star, explained by `Table.star`.
    """

    text: str
    small: str = ""
    link: str = ""
    star: bool = False


@dataclass(frozen=True)
class Number:
    """A number, None or NaN where it is undefined; `form` is its format specification."""

    value: float | None
    form: str = ".2f"
    small: str = ""

    def __str__(self) -> str:
        """Return the number as it is printed, "-" where it is undefined."""
        return "-" if self.value is None or math.isnan(self.value) else f"{self.value:{self.form}}"


@dataclass(frozen=True)
class Interval:
    """A mean and the half-width of its interval, either None where it is undefined.

    Attributes:
        mean: as it is.
        ci95: half-width of the 95% interval.
        digits: after the decimal point, of both.
        ci_digits: of the half-width, where it is printed with others: the paper's.
        signed: whether a positive mean is printed with its sign, as of a difference.
        strong: whether it is printed bold, explained by `Table.bold`.
        underlined: whether it is underlined, explained by `Table.underline`.
        versus: "better" or "worse" if it differs significantly from the reference of `Table.arrows`, shown as an arrow.
        small: a remark in smaller type.
        bounds: of the interval, where it is not one around the mean: those of one scored file.
    """

    mean: float | None
    ci95: float | None
    digits: int = 2
    ci_digits: int | None = None
    signed: bool = False
    strong: bool = False
    underlined: bool = False
    versus: Literal["", "better", "worse"] = ""
    small: str = ""
    bounds: tuple[float, float] | None = None

    def __str__(self) -> str:
        """Return the mean and its interval, if there is one; "-" for an undefined mean."""
        return self.printed_mean if self.mean is None else f"{self.printed_mean} {self.spread('+/- ')}".strip()

    @property
    def printed_mean(self) -> str:
        """The mean as it is printed, "-" where it is undefined."""
        return "-" if self.mean is None else f"{self.mean:{'+' if self.signed else ''}.{self.digits}f}"

    def spread(self, plus_minus: str) -> str:
        """Return the half-width behind a sign, the bounds in brackets, or ""."""
        if self.bounds is not None:
            return "[{:.{digits}f}, {:.{digits}f}]".format(*self.bounds, digits=self.digits)
        digits = self.digits if self.ci_digits is None else self.ci_digits
        return "" if self.ci95 is None else f"{plus_minus}{self.ci95:.{digits}f}"


@dataclass(frozen=True)
class Flag:
    """A word of a few that a column has, such as yes, no or a verdict; `kind` chooses its colour."""

    text: str
    kind: str = ""


Cell = Text | Number | Interval | Flag
COMPARISON_ARROWS = {"better": "▲", "worse": "▼"}
CHECK = Flag("✓", "yes")
CROSS = Flag("✗", "no")


@dataclass(frozen=True)
class Line:
    """A row of a table.

    Attributes:
        cells: one per column.
        kind: "" for a plain row, "lacking" for one that is not ranked, "printed" for numbers of others.
    """

    cells: Sequence[Cell]
    kind: str = ""

    @property
    def starred(self) -> bool:
        """Whether a cell has a star."""
        return any(isinstance(cell, Text) and cell.star for cell in self.cells)


@dataclass(frozen=True)
class Table:
    """A table that any format can show.

    Attributes:
        title: of a page of its own.
        columns: headings; an arrow at the end says which direction is better.
        rows: of as many cells as there are columns.
        above, notes: sentences above and below it.
        items: a list below the notes.
        star, bold, underline: the meaning of a star behind a name, of a bold and of an underlined number, or "".
        arrows: the end of the sentence on the arrows, "better" and "worse"; "" without arrows.
        merged: number of leading columns in which LaTeX prints equal neighbours once.
        floats: whether LaTeX makes a figure of one page with a caption of it, as the paper's tables are.
        records: for CSV, a dictionary per line; None for the cells.
        keys: header of a CSV without lines.
        content: for JSON; None for the records under "rows".
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Line]
    notes: Sequence[str] = ()
    items: Sequence[str] = ()
    above: Sequence[str] = ()
    star: str = ""
    bold: str = ""
    underline: str = ""
    arrows: str = ""
    merged: int = 0
    floats: bool = False
    records: Sequence[Mapping[str, Any]] | None = None
    keys: Sequence[str] = ()
    content: Mapping[str, Any] | None = None

    @property
    def numeric(self) -> list[bool]:
        """Whether each column holds numbers."""
        lines = [line.cells for line in self.rows]
        return [any(isinstance(line[place], Number | Interval) for line in lines) for place in range(len(self.columns))]

    def as_records(self) -> Sequence[Mapping[str, Any]]:
        """Return a dictionary per line, numbers at full precision."""
        if self.records is not None:
            return self.records
        names = [column.rstrip(" ↑↓") for column in self.columns]
        return [
            {key: value for name, cell in zip(names, line.cells, strict=True) for key, value in _values(name, cell)}
            for line in self.rows
        ]


class CommandOutput(NamedTuple):
    """How a command ends: a table, if there is one, lines for standard error after it, and the exit code."""

    table: Table | None
    lines: Sequence[str] = ()
    code: int = 0


def _values(name: str, cell: Cell) -> list[tuple[str, Any]]:
    if isinstance(cell, Interval):
        return [(name, cell.mean), (f"{name} ci95", cell.ci95)]
    return [(name, cell.value if isinstance(cell, Number) else cell.text)]
