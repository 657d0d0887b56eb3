"""Each row of a table against the best competitive row and against cross-entropy of its type, by seed.

Which pairs are shown depends on the data, so p is adjusted as for the table's letters: over all pairs of its ranked
rows in all its columns. A pair differs significantly exactly if it shares no letter.

C: columns, R: rows, S: seeds.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from hierbench.leaderboard.board import Board
from hierbench.leaderboard.columns import Column
from hierbench.leaderboard.letters import MOST_ROWS
from hierbench.leaderboard.paired import Difference, difference, holm, values_by_seed
from hierbench.leaderboard.power import effect_of_values, seeds_needed
from hierbench.leaderboard.statistics import Row, ranked_rows
from hierbench.leaderboard.ties import pairwise_p

BASELINE = "ce"
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


@dataclass(frozen=True)
class Tests:
    """The tests of a table, those that its letters are from.

    Attributes:
        seeds: whose values are compared.
        places: of the ranked rows, by `id`.
        adjusted: {metric: p after Holm's correction [R, R], NaN where there is no test}.
        number: of tests.
    """

    seeds: tuple[int, ...] = ()
    places: dict[int, int] = field(default_factory=dict)
    adjusted: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    number: int = 0

    def of(self, row: Row, reference: Row, metric: str) -> float:
        """Return the adjusted p of a pair that both have places, NaN without a test."""
        found = self.adjusted.get(metric)
        return math.nan if found is None else float(found[self.places[id(row)], self.places[id(reference)]])


def best_row(rows: Sequence[Row]) -> Row | None:
    """Return the competitive row with the most best cells, of equal ones that of the smallest mistake severity."""

    def place(row: Row) -> tuple[int, float]:
        severity = row.metrics["mistake_severity"].mean
        return -sum(cell.best for cell in row.metrics.values()), math.inf if severity is None else severity

    return min((row for row in rows if row.competitive), key=place, default=None)


def tests_of(board: Board) -> Tests:
    """Return all tests of a board; none where its rows have no letters, as of one seed or more than 100 rows."""
    rows, seeds = ranked_rows(board.rows), board.seeds
    names = [column.name for column in board.columns if any(column.name in row.metrics for row in rows)]
    if not names or len(seeds) < 2 or not 2 <= len(rows) <= MOST_ROWS:
        return Tests()
    known = [values_by_seed(row, names) for row in rows]
    values = [[[of_row[name].get(seed, math.nan) for seed in seeds] for of_row in known] for name in names]
    p, _ = pairwise_p(np.array(values))
    upper = np.triu(~np.isnan(p), 1)
    adjusted = np.full(p.shape, math.nan)
    adjusted[upper] = holm(p[upper])
    adjusted = np.fmin(adjusted, adjusted.swapaxes(1, 2))
    places = {id(row): place for place, row in enumerate(rows)}
    return Tests(seeds, places, dict(zip(names, adjusted, strict=True)), int(upper.sum()))


def pairs_of(board: Board) -> list[Pair]:
    """Return the comparisons of a board, in the order of its rows."""
    rows = board.of_runs.rows
    best, baselines, tests = best_row(rows), _baselines(rows), tests_of(board)
    columns = board.shown
    found = []
    for row in rows:
        of_type = baselines.get(row.type)
        reasons = [(best, BEST), (of_type, OF_TYPE)] if best is not of_type else [(best, f"{BEST} and {OF_TYPE}")]
        for other, why in reasons:
            if other is not None and other is not row:
                found.append(_compared(row, other, why, columns, tests))
    place = {id(row): number for number, row in enumerate(rows)}
    return sorted(found, key=lambda pair: (place[id(pair.row)], place[id(pair.reference)]))


def _baselines(rows: Sequence[Row]) -> dict[str, Row]:
    """Return the row of cross-entropy of each type that has one and no second."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        if row.method == BASELINE:
            found.setdefault(row.type, []).append(row)
    return {kind: of_type[0] for kind, of_type in found.items() if len(of_type) == 1}


def _compared(row: Row, other: Row, why: str, columns: Sequence[Column], tests: Tests) -> Pair:
    """Compare two rows: by the seeds of the table where both are ranked, else by all that they have."""
    among = id(row) in tests.places and id(other) in tests.places
    names = [column.name for column in columns]
    one, reference = values_by_seed(row, names), values_by_seed(other, names)
    gaps = []
    for column in columns:
        values, references = one[column.name], reference[column.name]
        if among:
            values, references = (
                {seed: side[seed] for seed in tests.seeds if seed in side} for side in (values, references)
            )
        if (gap := difference(values, references)) is not None:
            p = tests.of(row, other, column.name) if among else math.nan
            gaps.append(Gap(column, replace(gap, p_holm=p), values, references))
    return Pair(row, other, why, tuple(gaps), tests.number if among else 0)
