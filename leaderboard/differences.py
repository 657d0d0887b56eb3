"""Comparisons of a board's rows with a reference, which `hierbench compare` and `Board.compare` show."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from hierbench.leaderboard.board_data import BoardData
from hierbench.leaderboard.changes import spec_changes
from hierbench.leaderboard.formats import html, render
from hierbench.leaderboard.paired import (
    BASELINE,
    Difference,
    RowComparison,
    adjusted,
    differences,
    known_values,
    matched_rows,
    values_by_seed,
)
from hierbench.leaderboard.statistics import Row
from hierbench.leaderboard.table import Table
from hierbench.leaderboard.tables.differences_table import difference_records, differences_table
from hierbench.utils.errors import UserError, unknown_name

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, repr=False)
class Differences:
    """Rows of a leaderboard minus a reference; a notebook shows a table, `print` markdown.

    Each of `comparisons` has `row`, `reference`, `differences` and `changes`, in what the settings of their runs
    differ. `differences` are {metric: difference} with `mean`, `ci95` (half-width of the 95% t-interval), `n` seeds,
    `effect` (mean over standard deviation), `p` and `p_holm` (adjusted over the table), and `significant`.
    """

    board: BoardData
    comparisons: Sequence[RowComparison]

    def __iter__(self) -> Iterator[RowComparison]:
        return iter(self.comparisons)

    def __len__(self) -> int:
        return len(self.comparisons)

    def __getitem__(self, metric: str) -> Difference:
        """Return the difference in a metric, of a single comparison."""
        if len(self.comparisons) != 1:
            raise UserError(f"there are {len(self.comparisons)} comparisons; choose from .comparisons, or use .frame()")
        differences = self.comparisons[0].differences
        if metric not in differences:
            raise unknown_name("metric with at least two runs a side", metric, differences)
        return differences[metric]

    def __repr__(self) -> str:
        pairs = ", ".join(f"{pair.row.method}:{pair.row.type}" for pair in self.comparisons[:3])
        more = ", ..." if len(self.comparisons) > 3 else ""
        return f"<Differences {self.board.dataset}: {pairs}{more} minus {self.comparisons[0].reference.method}>"

    def __str__(self) -> str:
        return render(self.table)

    def _repr_html_(self) -> str:
        return html.notebook(self.table)

    @cached_property
    def table(self) -> Table:
        """The table that every format shows."""
        return differences_table(self.board, self.comparisons)

    def frame(self) -> pd.DataFrame:
        """Return a line per comparison and metric for pandas, numbers at full precision."""
        import pandas as pd

        return pd.DataFrame(difference_records(self.comparisons))


def compare_rows(board: BoardData, reference: str, others: Sequence[str] = ()) -> list[RowComparison]:
    """Compare rows of a board with a reference, in all its columns.

    Of all rows with cross-entropy, the tests are those of the table; rows that are not ranked are shown beside them.

    Args:
        board: of runs.
        reference: METHOD:TYPE; or METHOD, whose row of the same type each row is compared with.
        others: the rows, METHOD or METHOD:TYPE; by default all.

    Raises:
        UserError: no such row, a scored one, several (a method with several hyperparameters), nothing to compare, or no
            two rows with two seeds each.
    """
    rows = board.of_runs.rows
    board.refuse_scored([reference, *others])
    pairs = matched_rows(rows, reference, others)
    names = [column.name for column in board.columns]
    adjusted_differences = adjusted([differences(row, base, names) for row, base in pairs])
    if reference == BASELINE and not others and board.tests:
        adjusted_differences = [
            {name: board.tests.get((row.key, name), replace(gap, p_holm=math.nan)) for name, gap in pair_gaps.items()}
            for (row, _), pair_gaps in zip(pairs, adjusted_differences, strict=True)
        ]
    if not any(adjusted_differences):
        sides = " and ".join(f"{_num_seeds(row, names)} of {row.method}:{row.type}" for row in reversed(pairs[0]))
        raise UserError(f"differences need two seeds of each row with a value; there are {sides}")
    return [
        RowComparison(row, base, pair_gaps, tuple(spec_changes(base, board.records, row, board.records)))
        for (row, base), pair_gaps in zip(pairs, adjusted_differences, strict=True)
    ]


def _num_seeds(row: Row, names: Sequence[str]) -> int:
    """Return how many seeds of a row have a value, in the column where most have."""
    values = values_by_seed(row, names).values()
    return max((len(known_values(values)) for values in values), default=0)
