"""Comparisons of rows in every format."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from hierbench.leaderboard.board import Board
from hierbench.leaderboard.columns import Column
from hierbench.leaderboard.paired import Comparison, Difference
from hierbench.leaderboard.render import csv_text, lacking
from hierbench.leaderboard.sheet import Bold, Sheet
from hierbench.utils.files import as_json_text
from hierbench.utils.text import one_line

FEW = 3  # comparisons for which it is said in what the specs differ: of all rows of a table it would fill pages
EFFECT = "d: mean over standard deviation, of the differences by seed or pooled over both rows."


def sheet(board: Board, comparisons: Sequence[Comparison]) -> Sheet:
    """Return a table of differences, a row per comparison, with what the numbers are below it."""
    found = [pair.differences for pair in comparisons]
    return Sheet(
        title=f"{board.dataset}, differences",
        headings=["Model", "Method", "minus", *(column.heading for column in board.columns), "Seeds"],
        lines=[
            [
                pair.row.type,
                f"{pair.row.title} ({lacking(pair.row)})" if pair.row.lacking else pair.row.title,
                _reference(pair),
                *(cell_of(pair.differences.get(column.name), column) for column in board.columns),
                seeds_of(pair.differences),
            ]
            for pair in comparisons
        ],
        notes=[
            f"{board.dataset}, protocol {board.protocol}: row minus reference, +/- half-width of the 95% t-interval. "
            + EFFECT,
            f"Bold: p below 0.05 after {correction(found)}. {how_paired(found)}",
        ],
        items=[
            f"{pair.row.title} {pair.row.type} is not {_reference(pair)} in: {', '.join(map(str, pair.changes))}"
            for pair in comparisons
            if pair.changes and len(comparisons) <= FEW
        ],
    )


def _reference(pair: Comparison) -> str:
    title = pair.reference.title
    return title if pair.reference.type == pair.row.type else f"{title}, {pair.reference.type}"


def correction(found: Sequence[dict[str, Difference]]) -> str:
    """Return over what p is adjusted."""
    tests = sum(map(len, found))
    return f"Holm's correction over all {tests:,} differences" if tests != 1 else "a single test"


def how_paired(found: Sequence[dict[str, Difference]]) -> str:
    """Return the sentence that says where rows were not paired by seed."""
    if any(gap.test == "welch" for of_pair in found for gap in of_pair.values()):
        return 'Differences are paired by seed; where fewer than two are shared, Welch\'s test is used: "Welch".'
    return "Differences are paired by seed."


def seeds_of(differences: dict[str, Difference]) -> str:
    """Return the number of seeds behind a row's differences."""
    return ", ".join(sorted({_seeds(gap) for gap in differences.values()})) or "-"


def _seeds(gap: Difference) -> str:
    return str(gap.n) if gap.test == "paired" else f"{gap.n} (Welch)"


def cell_of(gap: Difference | None, column: Column) -> str:
    """Return a difference with its interval and effect size, bold if it is significant; "-" without."""
    if gap is None:
        return "-"
    text = f"{gap.mean:+.{column.digits}f} +/- {gap.ci95:.{column.digits}f}"
    if gap.effect is not None:
        text += f" (d {gap.effect:+.1f})"
    return Bold(text) if gap.significant else text


def records(comparisons: Sequence[Comparison]) -> list[dict[str, Any]]:
    """Return a record per comparison and metric."""
    return [
        {
            "type": pair.row.type,
            "method": one_line(pair.row.method),
            "reference": one_line(f"{pair.reference.method}:{pair.reference.type}"),
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
    """Return the records, with what they are of, and per row in what its specs differ from the reference's."""
    specs = [
        {
            "type": pair.row.type,
            "method": one_line(pair.row.method),
            "reference": one_line(f"{pair.reference.method}:{pair.reference.type}"),
            "changes": [asdict(change) for change in pair.changes],
        }
        for pair in comparisons
    ]
    content = {"schema": 1, "dataset": board.dataset, "protocol": board.protocol, "differences": records(comparisons)}
    return as_json_text(content | {"specs": specs})


FORMATS: dict[str, Callable[[Board, Sequence[Comparison]], str]] = {
    "markdown": lambda board, pairs: sheet(board, pairs).markdown(),
    "latex": lambda board, pairs: sheet(board, pairs).latex(),
    "csv": as_csv,
    "json": as_json,
    "html": lambda board, pairs: sheet(board, pairs).html(),
}
