"""Differences between rows of a table: paired by seed where two rows share seeds, else Welch's; Holm over the table.

Two rows trained with the same seeds share their data order and initial backbone, so that much of what varies from seed
to seed cancels in the difference: its interval says more than two overlapping intervals of the rows do.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from hierbench.leaderboard.changes import Change
from hierbench.leaderboard.statistics import (
    Row,
    RowKey,
    Summary,
    crossed_error,
    deviation_from_interval,
    ranked_rows,
    searched_rows,
    t_quantile,
    two_sided_p,
    welch,
)
from hierbench.utils.errors import UserError, unknown_name

BASELINE = "ce"  # cross-entropy, which knows nothing of the tree
SIGNIFICANT = 0.05  # of the adjusted p
SUM_ROUNDING = 1e-12  # of the largest value: smaller differences come from the order of additions


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
        p_holm: adjusted for all rows and columns that are compared (Holm, Scand. J. Statist. 6, 1979); NaN of a
            difference that is shown and not tested.
        error: standard error of the mean.
        freedom: degrees of freedom.
    """

    mean: float
    ci95: float
    n: int
    test: str
    effect: float | None
    p: float
    p_holm: float = float("nan")
    error: float = float("nan")
    freedom: float = float("nan")

    @property
    def significant(self) -> bool:
        """Whether the adjusted p is below 0.05."""
        return self.p_holm < SIGNIFICANT


@dataclass(frozen=True)
class RowComparison:
    """A row and the reference it is compared with.

    Attributes:
        differences: {metric: row minus reference}; without one where runs are too few.
        changes: the differing settings of their runs, from the reference to the row.
    """

    row: Row
    reference: Row
    differences: dict[str, Difference]
    changes: tuple[Change, ...] = ()


def difference(row: Mapping[int, float], reference: Mapping[int, float]) -> Difference | None:
    """Return the difference of two rows in one metric, from {seed: value}; None with fewer than two runs a side.

    NaN, a severity without mistakes, is left out. Paired by seed where two seeds or more are shared.
    """
    first = known_values(row)
    other = known_values(reference)
    rounding = SUM_ROUNDING * max(map(abs, [*first.values(), *other.values()]), default=0.0)
    shared = sorted(first.keys() & other.keys())
    if len(shared) >= 2:
        gaps = np.array([first[seed] - other[seed] for seed in shared])
        deviation = float(gaps.std(ddof=1))
        count = len(gaps)
        error = deviation / math.sqrt(count)
        p = _t_test_p(float(gaps.mean()), error, count - 1.0, 0.5 ** (count - 1), rounding)
        return _difference(float(gaps.mean()), error, count - 1.0, count, "paired", deviation, p)
    if min(len(first), len(other)) < 2:
        return None
    values = [np.array(list(side.values())) for side in (first, other)]
    variances = [float(side.var(ddof=1)) for side in values]
    error, freedom = welch(variances, [len(first), len(other)])
    mean = float(values[0].mean() - values[1].mean())
    p = _t_test_p(mean, error, freedom, 2.0 / math.comb(len(first) + len(other), len(first)), rounding)
    pooled = math.sqrt(sum(variances) / 2.0)
    return _difference(mean, error, freedom, min(map(len, values)), "welch", pooled, p)


def difference_of_cells(cell: Summary, reference: Summary, n: int, ddof: int) -> Difference | None:
    """Return the difference of two printed means, from their half-widths (Welch's test); None where one is missing.

    Args:
        cell: mean and half-width of a row.
        reference: those of its reference.
        n: runs behind each.
        ddof: of the standard deviations in the half-widths.
    """
    first_deviation = deviation_from_interval(cell, n, ddof)
    other = deviation_from_interval(reference, n, ddof)
    if first_deviation is None or other is None or cell.mean is None or reference.mean is None:
        return None
    error, freedom = welch([first_deviation**2, other**2], [n, n])
    mean = cell.mean - reference.mean
    p = _t_test_p(mean, error, freedom, 2.0 / math.comb(2 * n, n), 0.0)
    return _difference(mean, error, freedom, n, "welch", math.hypot(first_deviation, other) / math.sqrt(2.0), p)


def known_values(values: Mapping[int, float]) -> dict[int, float]:
    """Return {seed: value} without NaN."""
    return {seed: value for seed, value in values.items() if not math.isnan(value)}


def _t_test_p(mean: float, error: float, freedom: float, least: float, rounding: float) -> float:
    """Return the two-sided p of a t-test, `least` for a difference without any variation."""
    # Without variation, as of accuracies on a few images, the t-test would call any difference certain. There p is that
    # of a sign test of the seeds, 2^(1 - n), or of a permutation test of the two rows, 2 / (n + m choose n).
    if error > rounding:
        return two_sided_p(mean, error, freedom)
    return 1.0 if abs(mean) <= rounding else least


def _difference(mean: float, error: float, freedom: float, n: int, test: str, deviation: float, p: float) -> Difference:
    effect = mean / deviation if deviation else None
    return Difference(mean, t_quantile(freedom) * error, n, test, effect, p, error=error, freedom=freedom)


def holm(ps: ArrayLike) -> list[float]:
    """Return the adjusted p of each test: with them below a level, the chance of any false finding is below it."""
    values = np.asarray(ps, dtype=np.float64)
    order = np.argsort(values, kind="stable")
    steps = values[order] * np.arange(len(values), 0, -1)
    adjusted = np.empty(len(values))
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return [float(value) for value in adjusted]


def difference_of_examples(values: Mapping[str, Any], other: Mapping[str, Any], name: str) -> Difference | None:
    """Return the difference of two rows in a metric over seeds and images, from their values [S, N] by metric.

    None where one has no such values, or they are of other numbers of seeds or images.
    """
    if name not in values or name not in other or values[name].shape != other[name].shape:
        return None
    gaps = values[name] - other[name]
    error, freedom = crossed_error(gaps)
    mean = float(gaps.mean())
    p = _t_test_p(mean, error, freedom, 0.5 ** (len(gaps) - 1), SUM_ROUNDING * float(abs(gaps).max(initial=0.0)))
    return _difference(mean, error, freedom, len(gaps), "paired", error * math.sqrt(len(gaps)), p)


def baseline_tests(
    rows: Sequence[Row],
    names: Sequence[str],
    seeds: Sequence[int],
    examples: Mapping[RowKey, Mapping[str, Any]] | None = None,
) -> dict[tuple[RowKey, str], Difference]:
    """Return {(key of a row, metric): its difference from cross-entropy of its type}, the tests of a table.

    They are of each ranked row in all columns, by the table's seeds, with Holm's correction over all of them: a table
    of equal methods shows any difference at all with a probability of at most 5%. One seed is not tested, nor is a type
    with no row of cross-entropy, or with several. A row's further seeds do not count: adding seeds while looking at the
    arrows would find a difference sooner or later.

    Args:
        rows: of a board.
        names: of its columns.
        seeds: that it ranks by.
        examples: {row: {metric: values [S, N]}}, for tests over seeds and images.
    """
    if len(seeds) < 2 or not names:
        return {}
    ranked = ranked_rows(rows)
    gaps = dict[tuple[RowKey, str], Difference]()
    bases = [row for row in ranked if row.method == BASELINE]
    for base in bases:
        if [other.type for other in bases].count(base.type) == 1:
            for row in ranked:
                if row.type == base.type and row is not base:
                    tests = differences(row, base, names, seeds)
                    if examples and row.seeds == base.seeds:
                        sides = (examples.get(row.key, {}), examples.get(base.key, {}))
                        tests |= {name: gap for name in names if (gap := difference_of_examples(*sides, name))}
                    gaps |= {(row.key, name): gap for name, gap in tests.items()}
    ps = holm([gap.p for gap in gaps.values()])
    return {key: replace(gap, p_holm=p) for (key, gap), p in zip(gaps.items(), ps, strict=True)}


def differences(
    row: Row, reference: Row, names: Sequence[str], seeds: Sequence[int] | None = None
) -> dict[str, Difference]:
    """Return {metric: row minus reference} of some or all seeds, p not adjusted; without it where runs are too few."""
    row_values = values_by_seed(row, names, seeds)
    other = values_by_seed(reference, names, seeds)
    return {name: gap for name in names if (gap := difference(row_values[name], other[name]))}


def adjusted(tests: Sequence[dict[str, Difference]]) -> list[dict[str, Difference]]:
    """Return the differences with p adjusted over the whole family."""
    ps = iter(holm([gap.p for pair_gaps in tests for gap in pair_gaps.values()]))
    return [{name: replace(gap, p_holm=next(ps)) for name, gap in pair_gaps.items()} for pair_gaps in tests]


def matched_rows(rows: Sequence[Row], reference: str, others: Sequence[str] = ()) -> list[tuple[Row, Row]]:
    """Return each row with the reference that it is compared with; arguments and errors as in `compare_rows`."""
    references = named_rows(rows, reference)
    if len({row.type for row in references}) < len(references):
        raise UserError(f"{reference} has several rows of a type; compare with another, or remove the runs of one")
    chosen = [row for other in others for row in named_rows(rows, other)] if others else rows
    pairs = []
    for row in chosen:
        same_type = [candidate for candidate in references if ":" in reference or candidate.type == row.type]
        if same_type and same_type[0] is not row:
            pairs.append((row, same_type[0]))
    if not pairs:
        raise UserError(f"nothing to compare with {reference}: no other row of its type")
    return pairs


def named_rows(rows: Sequence[Row], name: str) -> list[Row]:
    """Return the rows that METHOD or METHOD:TYPE stands for; a UserError if there is no such row.

    Of several of one type these are the ones that were not set by hand, if there are any.
    """
    method, _, feature_type = name.partition(":")
    matches = searched_rows([row for row in rows if row.method == method and feature_type in ("", row.type)])
    if not matches:
        raise unknown_name("row", name, sorted({f"{row.method}:{row.type}" for row in rows}))
    return matches


def values_by_seed(row: Row, names: Sequence[str], seeds: Sequence[int] | None = None) -> dict[str, dict[int, float]]:
    """Return {metric: {seed: value}} of a row's finished runs, or of some seeds; {} of a metric that it has not."""
    values = {name: row.metrics[name].values if name in row.metrics else [] for name in names}
    pairs = {
        name: zip(row.seeds, metric_values, strict=True) if len(metric_values) == len(row.seeds) else ()
        for name, metric_values in values.items()
    }
    return {
        name: {seed: value for seed, value in seed_values if seeds is None or seed in seeds}
        for name, seed_values in pairs.items()
    }
