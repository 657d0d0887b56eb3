"""Each row of a table against the best competitive row and against cross-entropy of its type, by seed.

Which pairs are shown depends on the data, so p is adjusted as for the table's letters: over all pairs of its ranked
rows in all its columns. A pair differs significantly exactly if it shares no letter.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hierbench.leaderboard.board import Board
from hierbench.leaderboard.columns import Column
from hierbench.leaderboard.paired import Difference, difference, values_by_seed
from hierbench.leaderboard.power import effect_of_values, seeds_needed
from hierbench.leaderboard.statistics import Row, ranked_rows, with_best
from hierbench.leaderboard.ties import baselines, with_letters

BEST = "the best competitive row"
OF_TYPE = "cross-entropy of its type"


@dataclass(frozen=True)
class Gap:
    """The difference of two rows in one metric, and the values by seed that it is from."""

    column: Column
    difference: Difference
    row: dict[int, float]
    reference: dict[int, float]

    @property
    def seeds(self) -> int | None:
        """Seeds of each row that give 80 % power for this difference; None for more than 1,000."""
        effect = effect_of_values(self.row, self.reference)
        return seeds_needed(effect) if effect else None


@dataclass(frozen=True)
class Pair:
    """A row, what it is compared with and why, and the metrics in which both have two seeds or more.

    Attributes:
        tests: that p is adjusted over; 0 for a pair that is not among them, whose adjusted p is NaN.
    """

    row: Row
    reference: Row
    why: str
    gaps: tuple[Gap, ...]
    tests: int


def best_row(rows: Sequence[Row]) -> Row | None:
    """Return the competitive row with the most best cells, of equal ones that of the smallest mistake severity."""

    def place(row: Row) -> tuple[int, float]:
        severity = row.metrics["mistake_severity"].mean
        return -sum(cell.best for cell in row.metrics.values()), math.inf if severity is None else severity

    return min((row for row in rows if row.competitive), key=place, default=None)


def leaders_of(board: Board) -> list[tuple[Column, Row, Row | None]]:
    """Return of each column the best ranked row, and the best competitive one, None where that is the same."""
    rows, found = ranked_rows(board.rows), list[tuple[Column, Row, Row | None]]()
    marked = with_best(rows, board.shown)
    for column in board.shown:
        held = [
            (row, row.metrics[column.name].best)
            for row, overall in zip(rows, marked, strict=True)
            if column.name in row.metrics and overall.metrics[column.name].best
        ]
        star = next((row for row in rows if column.name in row.metrics and row.metrics[column.name].best), None)
        if held:
            both = next((row for row, best in held if best), None)
            found.append((column, both or held[0][0], None if both else star))
    return found


def adjusted_p(board: Board) -> dict[tuple[str, frozenset[int]], float]:
    """Return {(metric, `id` of both rows): p after Holm's correction} of the tests that a board's letters are from.

    There are none where its rows have no letters, as of one seed or more than 100 rows.
    """
    rows = ranked_rows(board.rows)
    _, family = with_letters(rows, board.columns, board.seeds)
    if family is None:
        return {}
    names = [column.name for column in board.columns if any(column.name in row.metrics for row in rows)]
    tested = np.argwhere(~np.isnan(family.p)).tolist()
    return {(names[which], frozenset((id(rows[i]), id(rows[j])))): family.p[which, i, j] for which, i, j in tested}


def pairs_of(board: Board) -> list[Pair]:
    """Return the comparisons of a board, in the order of its rows."""
    rows, adjusted = board.of_runs.rows, adjusted_p(board)
    best, references, place = best_row(rows), baselines(rows), {id(row): number for number, row in enumerate(rows)}
    ranked = set(map(id, ranked_rows(board.rows))) if adjusted else set()
    found = []
    for row in rows:
        of_type = references.get(row.type)
        reasons = [(best, BEST), (of_type, OF_TYPE)] if best is not of_type else [(best, f"{BEST} and {OF_TYPE}")]
        for other, why in reasons:
            if other is None or other is row:
                continue
            both = frozenset((id(row), id(other)))
            gaps = tuple(_gaps(row, other, board.shown, board.seeds if both <= ranked else None, adjusted))
            found.append(Pair(row, other, why, gaps, len(adjusted) if both <= ranked else 0))
    return sorted(found, key=lambda pair: (place[id(pair.row)], place[id(pair.reference)]))


def _gaps(
    row: Row,
    other: Row,
    columns: Sequence[Column],
    seeds: Sequence[int] | None,
    adjusted: Mapping[tuple[str, frozenset[int]], float],
) -> Iterator[Gap]:
    """Yield the differences of two rows, of these seeds where both are ranked, else of all that they have."""
    names, both = [column.name for column in columns], frozenset((id(row), id(other)))
    sides = [values_by_seed(side, names) for side in (row, other)]
    for column in columns:
        values, references = (
            {seed: value for seed, value in side[column.name].items() if seeds is None or seed in seeds}
            for side in sides
        )
        if (gap := difference(values, references)) is not None:
            p = adjusted.get((column.name, both), math.nan)
            yield Gap(column, replace(gap, p_holm=p), values, references)
