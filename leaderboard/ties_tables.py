"""Tie groups as markdown, CSV and JSON."""

from typing import Any

from hierbench.leaderboard.board import Board
from hierbench.leaderboard.render import csv_text, number, pipe_table, seeds
from hierbench.leaderboard.statistics import Cell
from hierbench.leaderboard.ties import Ties
from hierbench.utils.files import as_json_text
from hierbench.utils.text import markdown_escaped, one_line


def markdown(board: Board, ties: Ties) -> str:
    """Return a table of rows in the order of the metric with the letters of their groups, and what they mean."""
    name, digits = ties.column.name, ties.column.digits
    lines = [
        [
            markdown_escaped(row.type),
            markdown_escaped(row.title),
            number(row.metrics.get(name), digits=digits),
            seeds(row),
            _letters(groups),
        ]
        for row, groups in zip(ties.rows, ties.groups, strict=True)
    ]
    pairs = "1 pair" if ties.num_pairs == 1 else f"{ties.num_pairs} pairs"
    welch = "; where fewer than two seeds are shared, Welch's test is used" if ties.num_welch else ""
    note = (
        f"{markdown_escaped(board.dataset)}, protocol {board.protocol}: mean +/- half-width of the 95% t-interval over "
        "runs.\n"
        "Two rows that share no letter differ significantly: p below 0.05 after Holm's correction over "
        f"{pairs}. Two rows\nthat share one were not told apart, which does not show that they are equal. Differences "
        f"are paired by seed{welch}."
    )
    return f"{pipe_table(lines, ['Model', 'Method', ties.column.heading, 'Runs', 'Group'])}\n\n{note}\n"


def _letters(groups: tuple[str, ...]) -> str:
    return ("" if all(len(group) == 1 for group in groups) else " ").join(groups) or "-"


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
            "pairs": ties.num_pairs,
            "welch": ties.num_welch,
            "rows": records(ties),
        }
    )


FORMATS = {"markdown": markdown, "csv": as_csv, "json": as_json}
