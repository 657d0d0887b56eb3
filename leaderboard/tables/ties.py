"""Tie groups of the rows of a table, in one metric or in all its columns."""

from hierbench.leaderboard.board import Board
from hierbench.leaderboard.letters import MOST_ROWS, compact
from hierbench.leaderboard.statistics import Cell, ranked_rows
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


def letters_table(board: Board) -> Table:
    """Return the ranked rows of a board with the letters of their groups in each of its columns."""
    rows, columns = ranked_rows(board.rows), board.shown
    lines = [
        Line([Text(row.title), Text(row.type), *(Text(_letters(row.metrics.get(one.name))) for one in columns)])
        for row in rows
    ]
    tested = any(cell.groups for row in rows for cell in row.metrics.values())
    said = (
        "Two rows that share no letter in a column differ significantly there: p below 0.05 after Holm's correction "
        "over all pairs of these rows in all columns; a is the group of the best row. Two rows that share one were not "
        "told apart, which does not show that they are equal."
    )
    none = f"Rows are compared that have two seeds of the table, in tables of at most {MOST_ROWS} ranked rows."
    heads = ["Method", "Type", *(column.heading for column in columns)]
    return Table("Tie groups", heads, lines if tested else [], notes=[said if tested else none])


def _letters(cell: Cell | None) -> str:
    return compact(cell.groups) or "-" if cell is not None else "-"
