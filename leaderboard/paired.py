"""Differences between rows of a table: paired by seed where two rows share seeds, else Welch's; Holm over the table.

Two rows trained with the same seeds share their data order and initial backbone, so that much of what varies from seed
to seed cancels in the difference: its interval says more than two overlapping intervals of the rows do.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import stdtr, stdtrit

from hierbench.leaderboard.board import Board
from hierbench.leaderboard.render import ordered_rows
from hierbench.leaderboard.statistics import CONFIDENCE, Row
from hierbench.runs.store import Store
from hierbench.utils.errors import UserError, unknown_name

SIGNIFICANT = 0.05  # of the adjusted p


@dataclass(frozen=True)
class Difference:
    """Row minus reference in one metric.

    Attributes:
        mean: of the differences, or the difference of the means.
        ci95: half-width of its 95 % t-interval.
        n: shared seeds; for Welch's test the smaller number of runs.
        test: "paired" or "welch".
        effect: mean over standard deviation, of the differences or pooled over both rows; None where that is 0.
        p: two-sided, of a difference of 0.
        p_holm: adjusted for all rows that are compared in this metric (Holm, Scand. J. Statist. 6, 1979).
    """

    mean: float
    ci95: float
    n: int
    test: str
    effect: float | None
    p: float
    p_holm: float = float("nan")

    @property
    def significant(self) -> bool:
        """Whether the adjusted p is below 0.05."""
        return self.p_holm < SIGNIFICANT


@dataclass(frozen=True)
class Comparison:
    """A row, the reference it is compared with, and {metric: difference}; without one where runs are too few."""

    row: Row
    reference: Row
    differences: dict[str, Difference]


def difference(row: Mapping[int, float], reference: Mapping[int, float]) -> Difference | None:
    """Return the difference of two rows in one metric, from {seed: value}; None with fewer than two runs a side.

    NaN, a severity without mistakes, is left out. Paired by seed where two seeds or more are shared.
    """
    one = {seed: value for seed, value in row.items() if not math.isnan(value)}
    other = {seed: value for seed, value in reference.items() if not math.isnan(value)}
    if len(shared := sorted(one.keys() & other.keys())) >= 2:
        gaps = np.array([one[seed] - other[seed] for seed in shared])
        deviation, count = float(gaps.std(ddof=1)), len(gaps)
        return _difference(float(gaps.mean()), deviation / math.sqrt(count), count - 1.0, count, "paired", deviation)
    if min(len(one), len(other)) < 2:
        return None
    values = [np.array(list(side.values())) for side in (one, other)]
    parts = [float(side.var(ddof=1)) / len(side) for side in values]
    error, pooled = math.sqrt(sum(parts)), math.sqrt(sum(float(side.var(ddof=1)) for side in values) / 2.0)
    freedom = sum(parts) ** 2 / sum(p * p / (len(v) - 1) for p, v in zip(parts, values, strict=True)) if error else 1.0
    mean = float(values[0].mean() - values[1].mean())
    return _difference(mean, error, freedom, min(map(len, values)), "welch", pooled)


def _difference(mean: float, error: float, freedom: float, n: int, test: str, deviation: float) -> Difference:
    p = 2.0 * float(stdtr(freedom, -abs(mean) / error)) if error else float(mean == 0.0)
    half_width = float(stdtrit(freedom, (1.0 + CONFIDENCE) / 2.0)) * error
    return Difference(mean, half_width, n, test, mean / deviation if deviation else None, p)


def holm(ps: Sequence[float]) -> list[float]:
    """Return the adjusted p of each test: with them below a level, the chance of any false finding is below it."""
    order = np.argsort(ps, kind="stable")
    steps = np.asarray(ps)[order] * np.arange(len(ps), 0, -1)
    adjusted = np.empty(len(ps))
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return [float(value) for value in adjusted]


def compare_rows(board: Board, store: Store, reference: str, others: Sequence[str] = ()) -> list[Comparison]:
    """Compare rows of a board with a reference, in all its columns.

    Args:
        board: of runs.
        store: where the runs are.
        reference: METHOD:TYPE; or METHOD, whose row of the same type each row is compared with.
        others: the rows, METHOD or METHOD:TYPE; by default all.

    Raises:
        UserError: no such row, several (a method with several hyperparameters), or nothing to compare.
    """
    pairs = matched_rows([row for row in ordered_rows(board) if not row.scored], reference, others)
    names = [column.name for column in board.columns]
    values = {id(row): values_by_seed(row, store, names) for pair in pairs for row in pair}
    found = [
        {name: gap for name in names if (gap := difference(values[id(row)][name], values[id(base)][name]))}
        for row, base in pairs
    ]
    for name in names:
        holders = [of_pair for of_pair in found if name in of_pair]
        adjusted = holm([of_pair[name].p for of_pair in holders])
        for of_pair, p in zip(holders, adjusted, strict=True):
            of_pair[name] = replace(of_pair[name], p_holm=p)
    return [Comparison(row, base, of_pair) for (row, base), of_pair in zip(pairs, found, strict=True)]


def matched_rows(rows: Sequence[Row], reference: str, others: Sequence[str] = ()) -> list[tuple[Row, Row]]:
    """Return each row with the reference that it is compared with; arguments and errors as in `compare_rows`."""
    references = named_rows(rows, reference)
    if len({row.type for row in references}) < len(references):
        raise UserError(f"{reference} has several rows of a type; compare with another, or remove the runs of one")
    chosen = [row for other in others for row in named_rows(rows, other)] if others else rows
    pairs = []
    for row in chosen:
        of_type = [known for known in references if ":" in reference or known.type == row.type]
        if of_type and of_type[0] is not row:
            pairs.append((row, of_type[0]))
    if not pairs:
        raise UserError(f"nothing to compare with {reference}: no other row of its type")
    return pairs


def named_rows(rows: Sequence[Row], name: str) -> list[Row]:
    """Return the rows that METHOD or METHOD:TYPE stands for; a UserError where there is none."""
    method, _, feature_type = name.partition(":")
    found = [row for row in rows if row.method == method and feature_type in ("", row.type)]
    if not found:
        raise unknown_name("row", name, sorted({f"{row.method}:{row.type}" for row in rows}))
    return found


def values_by_seed(row: Row, store: Store, names: Sequence[str]) -> dict[str, dict[int, float]]:
    """Return {metric: {seed: value}} of a row's finished runs, whose values are in the order of its runs."""
    runs = [run for run in map(store.run, row.runs) if run.done]
    seeds = [int(run.spec()["seed"]) for run in runs]
    values = {name: row.metrics[name].values if name in row.metrics else [] for name in names}
    return {
        name: dict(zip(seeds, known, strict=True)) if len(known) == len(seeds) else {} for name, known in values.items()
    }
