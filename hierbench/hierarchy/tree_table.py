"""A table of text that holds a tree: its cells, and its columns by name or number."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from hierbench.hierarchy.node_paths import WHOLE_NUMBER
from hierbench.utils.errors import Argument, InputError, nearest

MISSING_CELLS = frozenset(("", "NA", "N/A", "<NA>", "nan", "NaN", "None", "NULL", "null", "-"))  # cells without a node


@dataclass(frozen=True)
class TreeTable:
    """A table of text: its header, or None; its rows, of one width; where each is; and what it was read from."""

    header: tuple[str, ...] | None
    rows: list[list[str]]
    places: Sequence[str]
    source: str
    has_empty: bool = False  # whether cells of it are empty, not NA or -

    @property
    def width(self) -> int:
        """The number of columns."""
        return len(self.rows[0])

    @cached_property
    def columns(self) -> list[tuple[str, ...]]:
        """The cells of each column."""
        return list(zip(*self.rows, strict=True))

    def column(self, index: int) -> tuple[str, ...]:
        """Return the cells of a column."""
        return self.columns[index]

    @cached_property
    def values(self) -> list[frozenset[str]]:
        """The different cells of each column."""
        return list(map(frozenset, self.columns))

    def is_unique(self, index: int) -> bool:
        """Whether all cells of a column differ and none is missing."""
        return len(self.values[index]) == len(self.rows) and "" not in self.values[index]

    def is_numeric(self, index: int) -> bool:
        """Whether all cells of a column that are not missing are whole numbers."""
        return all(WHOLE_NUMBER.fullmatch(cell) for cell in self.values[index] if cell)

    def with_blanks(self) -> "TreeTable":
        """Return the table with "" for all cells that mean no node."""
        cells = frozenset().union(*self.values)
        missing = {cell for cell in cells if cell and is_missing(cell)}
        rows = [["" if cell in missing else cell for cell in row] for row in self.rows] if missing else self.rows
        return replace(self, rows=rows, has_empty="" in cells)

    def filled(self) -> "TreeTable":
        """Return the table with empty cells as the cell above, where all cells before them are; never the last one."""
        rows = list[list[str]]()
        for row in self.rows:
            above = rows[-1] if rows else [""] * self.width
            filled = list(row)
            for i, cell in enumerate(row[:-1]):
                if cell and cell != above[i]:
                    break
                filled[i] = cell or above[i]
            rows.append(filled)
        return replace(self, rows=rows, has_empty=False)

    def title(self, index: int) -> str:
        """Return a column's name in the header, or its number from 1."""
        return (self.header[index] if self.header else "") or str(index + 1)

    def word(self, index: int) -> str:
        """Return a column's name, its lower-case letters and digits alone; "" without a header."""
        return plain_word(self.header[index]) if self.header else ""

    def choice(self, columns: Sequence[int]) -> Argument:
        """Return the argument that chooses columns."""
        return Argument("columns", ",".join(map(self.title, columns)))

    def select(self, choices: Sequence[str]) -> "TreeTable":
        """Return the columns of these names or numbers; "genus+epithet" joins two.

        Raises:
            ValueError: there is no such column.
        """
        picks = [[self._index(part.strip()) for part in choice.split("+")] for choice in choices]
        rows = [[" ".join(row[i] for i in pick if row[i]) for pick in picks] for row in self.rows]
        header = tuple("+".join(map(self.title, pick)) for pick in picks)
        return replace(self, header=header, rows=rows)

    def check_coarsest(self, column: int) -> None:
        """Raise a ValueError for an empty cell in the coarsest column: it may mean the cell above, or none."""
        if self.has_empty and "" in self.values[column]:
            row = self.column(column).index("")
            fill = Argument("fill", True)
            raise InputError(
                f"{self.places[row]} has no {self.title(column)}: {fill} repeats the cell above; NA means none",
                fill,
            )

    def distinct(self, columns: Sequence[int]) -> "TreeTable":
        """Return the first row of each group that is equal in these columns."""
        first: dict[tuple[str, ...], int] = {}
        for row, cells in enumerate(self.rows):
            first.setdefault(tuple(cells[i] for i in columns), row)
        kept = list(first.values())
        return replace(self, rows=[self.rows[row] for row in kept], places=[self.places[row] for row in kept])

    def _index(self, name: str) -> int:
        titles = [self.title(i) for i in range(self.width)]
        if name in titles:
            return titles.index(name)
        if name.isdecimal() and 1 <= int(name) <= self.width:
            return int(name) - 1
        near = nearest(name, titles)
        hint = f"did you mean {near!r}? " if near else ""
        raise ValueError(f"it has no column {name!r}; {hint}columns: {', '.join(titles[:30])}")


def plain_word(name: str) -> str:
    """Return the letters and digits of a name, in lower case."""
    return "".join(char for char in name.casefold() if char.isalnum())


def is_missing(cell: str) -> bool:
    """Whether a cell means no node; so does "g__", an empty genus as GTDB and QIIME write it."""
    return cell in MISSING_CELLS or (cell[1:] == "__" and cell[0].islower())
