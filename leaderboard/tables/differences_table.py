"""Differences of rows from a reference."""

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from hierbench.leaderboard.board_data import BoardData
from hierbench.leaderboard.columns import Column
from hierbench.leaderboard.paired import Difference, RowComparison
from hierbench.leaderboard.statistics import Row
from hierbench.leaderboard.table import Interval, Line, Table, Text
from hierbench.leaderboard.tables.board_table import lacking
from hierbench.utils.text import one_line

MAX_LISTED_COMPARISONS = 3  # comparisons with a list of differing settings: for all rows of a table it would fill pages
EFFECT = "d: mean over standard deviation, of the differences by seed or pooled over both rows."


def differences_table(board: BoardData, comparisons: Sequence[RowComparison]) -> Table:
    """Return the differences from a reference: a row per comparison, and in CSV and JSON a line per metric too."""
    all_differences = [pair.differences for pair in comparisons]
    columns = [column for column in board.columns if any(column.name in differences for differences in all_differences)]
    return Table(
        title=f"{board.dataset}, differences",
        columns=["Model", "Method", "minus", *(column.heading for column in columns), "Seeds"],
        rows=[
            Line(
                [
                    Text(pair.row.type),
                    Text(pair.row.title, small=lacking(pair.row)),
                    Text(reference_title(pair.row, pair.reference)),
                    *(difference_cell(pair.differences.get(column.name), column) for column in columns),
                    Text(count_seeds(pair.differences)),
                ]
            )
            for pair in comparisons
        ],
        notes=[
            f"{board.dataset}, protocol {board.protocol}: row minus reference, +/- half-width of the 95% t-interval. "
            + EFFECT,
            how_paired(all_differences),
            "Arrows in the table itself are corrected over all its differences from cross-entropy, so that the two may "
            "differ.",
        ],
        items=[
            f"{pair.row.title} {pair.row.type} differs from {reference_title(pair.row, pair.reference)} in: "
            + ", ".join(map(str, pair.changes))
            for pair in comparisons
            if pair.changes and len(comparisons) <= MAX_LISTED_COMPARISONS
        ],
        merged=1,
        bold=f"p below 0.05 after {correction(all_differences)}",
        records=difference_records(comparisons),
        content={
            "dataset": board.dataset,
            "protocol": board.protocol,
            "differences": difference_records(comparisons),
            "specs": [{**_names(pair), "changes": [asdict(change) for change in pair.changes]} for pair in comparisons],
        },
    )


def difference_records(comparisons: Sequence[RowComparison]) -> list[dict[str, Any]]:
    """Return a record per comparison and metric."""
    return [
        {**_names(pair), "metric": metric, **as_numbers(gap)}
        for pair in comparisons
        for metric, gap in pair.differences.items()
    ]


def as_numbers(gap: Difference) -> dict[str, Any]:
    """Return a difference as JSON types."""
    return asdict(gap) | {"significant": gap.significant}


def _names(pair: RowComparison) -> dict[str, str]:
    reference = one_line(f"{pair.reference.method}:{pair.reference.type}")
    return {"type": pair.row.type, "method": one_line(pair.row.method), "reference": reference}


def reference_title(row: Row, reference: Row) -> str:
    """Return the title of a row's reference, and its type if it differs."""
    return reference.title if reference.type == row.type else f"{reference.title}, {reference.type}"


def correction(differences: Sequence[dict[str, Difference]]) -> str:
    """Return the family of tests for the adjustment of p."""
    tests = sum(not math.isnan(gap.p_holm) for pair_gaps in differences for gap in pair_gaps.values())
    rest = sum(map(len, differences)) - tests
    untested = "; those of rows that are not ranked are not tested" if rest else ""
    return f"Holm's correction over all {tests:,} differences{untested}" if tests != 1 else "a single test"


def how_paired(differences: Sequence[dict[str, Difference]]) -> str:
    """Return the sentence that says where rows were not paired by seed."""
    if any(gap.test == "welch" for pair_gaps in differences for gap in pair_gaps.values()):
        return 'Differences are paired by seed; where fewer than two are shared, Welch\'s test is used: "Welch".'
    return "Differences are paired by seed."


def count_seeds(differences: dict[str, Difference]) -> str:
    """Return the number of seeds behind a row's differences."""
    return ", ".join(sorted({_seeds(gap) for gap in differences.values()})) or "-"


def _seeds(gap: Difference) -> str:
    return str(gap.n) if gap.test == "paired" else f"{gap.n} (Welch)"


def difference_cell(gap: Difference | None, column: Column) -> Interval:
    """Return a difference with its interval and effect size, strong if it is significant; empty without."""
    if gap is None:
        return Interval(None, None)
    small = "" if gap.effect is None else f"d {gap.effect:+.1f}"
    return Interval(gap.mean, gap.ci95, column.digits, signed=True, strong=gap.significant, small=small)
