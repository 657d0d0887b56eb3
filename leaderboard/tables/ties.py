"""Tie groups of the rows of a table in one metric."""

from hierbench.leaderboard.board import Board
from hierbench.leaderboard.letters import compact
from hierbench.leaderboard.statistics import Cell
from hierbench.leaderboard.table import Interval, Line, Table, Text
from hierbench.leaderboard.tables.board import seeds
from hierbench.leaderboard.ties import Ties
from hierbench.utils.text import one_line


def ties_table(board: Board, ties: Ties) -> Table:
    """Return the rows in the order of the metric with the letters of their groups, and what they mean."""
    name, digits = ties.column.name, ties.column.digits
    found = [
        (row, row.metrics.get(name, Cell(None, None)), groups)
        for row, groups in zip(ties.rows, ties.groups, strict=True)
    ]
    records = [
        {
            "type": row.type,
            "method": one_line(row.method),
            "title": one_line(row.title),
            "mean": cell.mean,
            "ci95": cell.ci95,
            "n": row.n,
            "groups": groups,
        }
        for row, cell, groups in found
    ]
    return Table(
        title=f"{board.dataset}, {ties.column.title}",
        columns=["Model", "Method", ties.column.heading, "Runs", "Group"],
        rows=[
            Line(
                [
                    Text(row.type),
                    Text(row.title),
                    Interval(cell.mean, cell.ci95, digits),
                    Text(seeds(row)),
                    Text(compact(groups) or "-"),
                ]
            )
            for row, cell, groups in found
        ],
        notes=[
            f"{board.dataset}, protocol {board.protocol}: mean +/- half-width of the 95% t-interval over runs.",
            "Two rows that share no letter differ significantly: p below 0.05 after Holm's correction over "
            f"{_family(ties)}. Two rows that share one were not told apart, which does not show that they are equal.",
            f"The letters are of the table's seeds ({len(board.seeds)} per row), and differences are paired by seed"
            + ("; where fewer than two seeds are shared, Welch's test is used." if ties.num_welch else "."),
        ],
        merged=1,
        records=records,
        content={
            "dataset": board.dataset,
            "protocol": board.protocol,
            "metric": name,
            "seeds": board.seeds,
            "columns": ties.num_columns,
            "tests": ties.num_tests,
            "welch": ties.num_welch,
            "rows": records,
        },
    )


def _family(ties: Ties) -> str:
    """Return which tests the correction is over."""
    tests = "1 test" if ties.num_tests == 1 else f"{ties.num_tests:,} tests"
    columns = "1 column" if ties.num_columns == 1 else f"{ties.num_columns} columns"
    return f"{tests}, all pairs of these rows in the {columns} of the table"
