"""Tie groups of the rows of a table in one metric."""

from hierbench.leaderboard.board import Board
from hierbench.leaderboard.letters import compact
from hierbench.leaderboard.statistics import Cell
from hierbench.leaderboard.table import Interval, Line, Table, Text
from hierbench.leaderboard.tables.board import named, seeds
from hierbench.leaderboard.ties import Ties


def ties_table(board: Board, ties: Ties) -> Table:
    """Return the rows in the order of the metric with the letters of their groups, and what they mean."""
    name, digits, family = ties.column.name, ties.column.digits, ties.family
    num_columns = len(family.p)
    tests = "1 test" if family.number == 1 else f"{family.number:,} tests"
    columns = "1 column" if num_columns == 1 else f"{num_columns} columns"
    found = [
        (row, row.metrics.get(name, Cell(None, None)), groups)
        for row, groups in zip(ties.rows, ties.groups, strict=True)
    ]
    records = [
        {
            **named(row),
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
            f"{tests}, all pairs of these rows in the {columns} of the table. "
            "Two rows that share one were not told apart, which does not show that they are equal.",
            f"The letters are of the table's seeds ({len(board.seeds)} per row), and differences are paired by seed"
            + ("; where fewer than two seeds are shared, Welch's test is used." if family.num_welch else "."),
        ],
        merged=1,
        records=records,
        content={
            "dataset": board.dataset,
            "protocol": board.protocol,
            "metric": name,
            "seeds": board.seeds,
            "columns": num_columns,
            "tests": family.number,
            "welch": family.num_welch,
            "rows": records,
        },
    )
