"""Tie groups in every format."""

from collections.abc import Callable
from typing import Any

from hierbench.leaderboard.board import Board
from hierbench.leaderboard.letters import compact
from hierbench.leaderboard.render import csv_text, number, seeds
from hierbench.leaderboard.sheet import Sheet
from hierbench.leaderboard.statistics import Cell
from hierbench.leaderboard.ties import Ties
from hierbench.utils.files import as_json_text
from hierbench.utils.text import one_line


def sheet(board: Board, ties: Ties) -> Sheet:
    """Return a table of rows in the order of the metric with the letters of their groups, and what they mean."""
    name, digits = ties.column.name, ties.column.digits
    lines = [
        [row.type, row.title, number(row.metrics.get(name), digits=digits), seeds(row), compact(groups) or "-"]
        for row, groups in zip(ties.rows, ties.groups, strict=True)
    ]
    return Sheet(
        title=f"{board.dataset}, {ties.column.title}",
        headings=["Model", "Method", ties.column.heading, "Runs", "Group"],
        lines=lines,
        notes=[
            f"{board.dataset}, protocol {board.protocol}: mean +/- half-width of the 95% t-interval over runs.",
            "Two rows that share no letter differ significantly: p below 0.05 after Holm's correction over "
            f"{family(ties)}. Two rows that share one were not told apart, which does not show that they are equal.",
            f"The letters are of the table's seeds ({len(board.seeds)} per row), and differences are paired by seed"
            + ("; where fewer than two seeds are shared, Welch's test is used." if ties.num_welch else "."),
        ],
    )


def family(ties: Ties) -> str:
    """Return which tests the correction is over."""
    tests = "1 test" if ties.num_tests == 1 else f"{ties.num_tests:,} tests"
    columns = "1 column" if ties.num_columns == 1 else f"{ties.num_columns} columns"
    return f"{tests}, all pairs of these rows in the {columns} of the table"


def records(ties: Ties) -> list[dict[str, Any]]:
    """Return a record per row, best first; `groups` are the letters."""
    return [
        {
            "type": row.type,
            "method": one_line(row.method),
            "title": one_line(row.title),
            "mean": (cell := row.metrics.get(ties.column.name, Cell(None, None))).mean,
            "ci95": cell.ci95,
            "n": row.n,
            "groups": list(groups),
        }
        for row, groups in zip(ties.rows, ties.groups, strict=True)
    ]


def as_csv(board: Board, ties: Ties) -> str:
    """Return a line per row, numbers at full precision, the letters separated by blanks."""
    return csv_text([record | {"groups": " ".join(record["groups"])} for record in records(ties)])


def as_json(board: Board, ties: Ties) -> str:
    """Return the records, with what they are of."""
    return as_json_text(
        {
            "schema": 1,
            "dataset": board.dataset,
            "protocol": board.protocol,
            "metric": ties.column.name,
            "seeds": board.seeds,
            "columns": ties.num_columns,
            "tests": ties.num_tests,
            "welch": ties.num_welch,
            "rows": records(ties),
        }
    )


FORMATS: dict[str, Callable[[Board, Ties], str]] = {
    "markdown": lambda board, ties: sheet(board, ties).markdown(),
    "latex": lambda board, ties: sheet(board, ties).latex(),
    "csv": as_csv,
    "json": as_json,
    "html": lambda board, ties: sheet(board, ties).html(),
}
