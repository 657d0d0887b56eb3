"""Where the rows of a table differ significantly from cross-entropy of their type.

The tests are each ranked row against cross-entropy of its type in all columns, with Holm's correction over all of them:
a table of equal methods shows any difference at all with a probability of at most 5 %.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from hierbench.leaderboard.paired import SIGNIFICANT, difference, holm, values_by_seed
from hierbench.leaderboard.statistics import Row, ranked_rows

if TYPE_CHECKING:
    from hierbench.leaderboard.board import Board

BASELINE = "ce"  # cross-entropy, which knows nothing of the tree
Versus = Literal["", "better", "worse"]


@dataclass(frozen=True)
class Arrows:
    """Where the rows of a table differ significantly from cross-entropy of their type.

    Attributes:
        of: {(`id` of a row, metric): "better" or "worse"}.
        number: of tests.
    """

    of: dict[tuple[int, str], Versus]
    number: int


def arrows_of(board: Board) -> Arrows:
    """Compare the ranked rows of a board with cross-entropy of their type, by the table's seeds in all its columns.

    There is no test of one seed, and none in a type with no row of cross-entropy, or with several. A row's further
    seeds do not count: whoever adds seeds while looking at the arrows would find a difference sooner or later.
    """
    higher = {column.name: column.higher for column in board.shown}
    if len(board.seeds) < 2 or not higher:
        return Arrows({}, 0)
    rows, gaps = ranked_rows(board.rows), {}
    values = {
        id(row): {
            name: {seed: value for seed, value in of_seed.items() if seed in board.seeds}
            for name, of_seed in values_by_seed(row, list(higher)).items()
        }
        for row in rows
    }
    for base in baselines(rows):
        for row in rows:
            if row.type == base.type and row is not base:
                for name in higher:
                    gap = difference(values[id(row)][name], values[id(base)][name])
                    if gap is not None:
                        gaps[id(row), name] = gap
    adjusted = zip(gaps.items(), holm([gap.p for gap in gaps.values()]), strict=True)
    directions: dict[tuple[int, str], Versus] = {
        (row, name): "better" if (gap.mean > 0) == higher[name] else "worse"
        for ((row, name), gap), p in adjusted
        if p < SIGNIFICANT
    }
    return Arrows(directions, len(gaps))


def baselines(rows: Sequence[Row]) -> list[Row]:
    """Return the row of cross-entropy of each type that has one and no second."""
    found = [row for row in rows if row.method == BASELINE]
    return [row for row in found if [other.type for other in found].count(row.type) == 1]
