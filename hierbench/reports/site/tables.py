"""The table page: rows of runs with the numbers that were printed elsewhere beside them, in parts where it is long."""

from collections.abc import Sequence
from dataclasses import dataclass

from hierbench.leaderboard.board import Board, paper_datasets
from hierbench.leaderboard.columns import Column
from hierbench.leaderboard.statistics import Row
from hierbench.reports.site import svg
from hierbench.reports.site.content import Table
from hierbench.reports.site.methods import Known
from hierbench.reports.site.pages import Places

MOST_LINES = 60  # of a table on one page
MOST_CELLS = 500
PRINTED = "published"  # the protocol of what was printed elsewhere
PAPER = "Liang & Davis, ICCV 2023"


@dataclass(frozen=True)
class Line:
    """A line of the table page.

    Attributes:
        row: of the board, or of what was printed elsewhere.
        protocol: of its runs.
        page: of the row, "" for what was printed elsewhere.
        method: as it is filtered by.
        about: page of the method from the site's root, "" without one.
        source: who printed it, "" for a row of runs.
        verdict: the weakest of its runs, "" for what was printed elsewhere.
    """

    row: Row
    protocol: str
    page: str
    method: str
    about: str
    source: str
    verdict: str


@dataclass(frozen=True)
class Part:
    """The lines that are on one page."""

    page: str
    lines: list[Line]
    first: int
    last: int


def printed_rows(table: Table) -> Sequence[Row]:
    """Return what the paper and other authors printed for a table's dataset, in the paper's order."""
    return Board.paper(table.dataset, others=True).rows if table.dataset in paper_datasets() else ()


def lines_of(table: Table, places: Places, methods: dict[int, Known | None]) -> list[Line]:
    """Return the lines of a table: a printed row follows ours of the same type and method, the others come last."""
    printed = {(row.type, row.method, row.title): row for row in printed_rows(table)}
    lines = []
    for row in table.board.rows:
        known = methods[id(row)]
        about = f"methods/{known.slug}.html" if known else ""
        lines.append(Line(row, table.board.protocol, places.row(row), row.method, about, "", table.verdict_of(row)))
        same = [key for key in printed if key[:2] == (row.type, row.method)]
        lines += [_printed(printed.pop(key), about) for key in same]
    return [*lines, *(_printed(row, "") for row in printed.values())]


def _printed(row: Row, about: str) -> Line:
    source = row.citation["source"] if row.citation else PAPER
    return Line(row, PRINTED, "", row.method, about, source, "")


def parts_of(lines: Sequence[Line], columns: Sequence[Column]) -> list[Part]:
    """Return the lines in parts that keep pages light."""
    size = max(6, min(MOST_LINES, MOST_CELLS // max(1, len(columns))))
    starts = range(0, max(1, len(lines)), size)
    return [
        Part(
            f"page-{number}.html" if start else "index.html",
            list(lines[start : start + size]),
            start + 1,
            min(start + size, len(lines)),
        )
        for number, start in enumerate(starts, 1)
    ]


def content_of(table: Table, lines: Sequence[Line]) -> dict[str, object]:
    """Return what all parts of a table page show alike."""
    columns = table.board.shown
    rows = [line.row for line in lines]
    return {
        "columns": columns,
        "ends": svg.ranges(rows, [column.name for column in columns]),
        "types": sorted({row.type for row in rows}),
        "protocols": sorted({line.protocol for line in lines}),
        "lacking": any(row.lacking for row in rows),
        "grouped": any(cell.groups for row in rows for cell in row.metrics.values()),
        "printed": any(line.source for line in lines),
        "sources": sorted({(line.source, _setting(line.row)) for line in lines if line.source}),
    }


def _setting(row: Row) -> str:
    return f"{row.citation['where']}. {row.citation['setting']}." if row.citation else "their Tables 2 to 5."
