"""Comparisons of rows as markdown, CSV and JSON."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from hierbench.leaderboard.board import Board
from hierbench.leaderboard.columns import Column
from hierbench.leaderboard.paired import Comparison, Difference
from hierbench.leaderboard.render import csv_text, pipe_table
from hierbench.utils.files import as_json_text
from hierbench.utils.text import markdown_escaped


def markdown(board: Board, comparisons: Sequence[Comparison]) -> str:
    """Return a table of differences, a row per comparison, with what the numbers are below it."""
    headings = ["Model", "Method", "minus", *(column.heading for column in board.columns), "Seeds"]
    lines = [
        [
            pair.row.type,
            markdown_escaped(pair.row.title),
            _reference(pair),
            *(_cell(pair.differences.get(column.name), column) for column in board.columns),
            ", ".join(sorted({_seeds(gap) for gap in pair.differences.values()})) or "-",
        ]
        for pair in comparisons
    ]
    note = (
        f"{board.dataset}, protocol {board.protocol}: row minus reference, +/- half-width of the 95% t-interval.\n"
        "**Bold**: p below 0.05 after Holm's correction over the rows of the column. Differences are paired by seed; "
        'where fewer than two seeds are shared, the last column says "Welch".'
    )
    return f"{pipe_table(lines, headings)}\n\n{note}\n"


def _reference(pair: Comparison) -> str:
    title = markdown_escaped(pair.reference.title)
    return title if pair.reference.type == pair.row.type else f"{title}, {pair.reference.type}"


def _seeds(gap: Difference) -> str:
    return str(gap.n) if gap.test == "paired" else f"{gap.n} (Welch)"


def _cell(gap: Difference | None, column: Column) -> str:
    if gap is None:
        return "-"
    text = f"{gap.mean:+.{column.digits}f} +/- {gap.ci95:.{column.digits}f}"
    return f"**{text}**" if gap.significant else text


def records(comparisons: Sequence[Comparison]) -> list[dict[str, Any]]:
    """Return a record per comparison and metric."""
    return [
        {
            "type": pair.row.type,
            "method": pair.row.method,
            "reference": f"{pair.reference.method}:{pair.reference.type}",
            "metric": metric,
            **asdict(gap),
            "significant": gap.significant,
        }
        for pair in comparisons
        for metric, gap in pair.differences.items()
    ]


def as_csv(board: Board, comparisons: Sequence[Comparison]) -> str:
    """Return a line per comparison and metric, numbers at full precision."""
    found = records(comparisons)
    return csv_text(found) if found else "type,method,reference,metric\n"


def as_json(board: Board, comparisons: Sequence[Comparison]) -> str:
    """Return the records, with what they are of."""
    content = {"schema": 1, "dataset": board.dataset, "protocol": board.protocol, "differences": records(comparisons)}
    return as_json_text(content)


FORMATS = {"markdown": markdown, "csv": as_csv, "json": as_json}
