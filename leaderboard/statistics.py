"""Means, confidence intervals and the highlight rule."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import numpy as np
from scipy.special import stdtrit

METRICS = ("top1", "mistake_severity", "hierdist@1", "hierdist@5", "hierdist@20")
HIGHER_IS_BETTER = ("top1",)
TOLERANCE = Decimal("0.05")  # of competitive mistake severity
CONFIDENCE = 0.95


@dataclass
class Cell:
    """One metric of one row.

    Attributes:
        mean: over the values that exist, None without any.
        ci95: half-width of the 95% interval, None below two values.
        values: one per seed; NaN where a run has none (severity without a mistake).
        best: set by `highlight`.
    """

    mean: float | None
    ci95: float | None
    values: list[float] = field(default_factory=list)
    best: bool = False


@dataclass
class Row:
    """One line of a leaderboard.

    Attributes:
        tuning: {"trials", "runs", "study"} of the search that its hyperparameters came out of, None without one.
    """

    type: str
    method: str
    title: str
    n: int
    planned: int
    metrics: dict[str, Cell]
    runs: list[str] = field(default_factory=list)
    competitive: bool = False
    tuning: dict[str, Any] | None = None


def summarise(values: Sequence[float], ddof: int = 1) -> Cell:
    """Return the mean and the half-width t(.975, n - 1) s / sqrt(n) of the 95% interval.

    Args:
        values: one per run. NaN values do not enter: mistake severity is undefined for a run without mistakes.
        ddof: of the standard deviation s; the published intervals used 0 and are too narrow (docs/protocols.md, row 4).
    """
    known = np.array([value for value in values if not math.isnan(value)], dtype=np.float64)
    if not len(known):
        return Cell(None, None, list(values))
    mean = float(known.mean())
    if len(known) < 2:
        return Cell(mean, None, list(values))
    quantile = float(stdtrit(len(known) - 1, (1.0 + CONFIDENCE) / 2.0))
    return Cell(mean, quantile * float(known.std(ddof=ddof)) / math.sqrt(len(known)), list(values))


def printed(value: float, digits: int) -> Decimal:
    """Return a number as the table prints it."""
    return Decimal(f"{value:.{digits}f}")


def highlight(rows: Sequence[Row]) -> None:
    """Mark competitive rows and, among them, the best cell of each metric.

    A row is competitive when its mean mistake severity is at most 0.05 above the smallest, compared as decimals at
    the printed precision of two digits. The best of a metric is the best printed mean among competitive rows; equal
    means are settled by the narrower printed interval, and what is still equal is best together.
    """
    severities = {
        id(row): printed(mean, 2) for row in rows if (mean := row.metrics["mistake_severity"].mean) is not None
    }
    if not severities:
        return
    limit = min(severities.values()) + TOLERANCE
    for row in rows:
        row.competitive = id(row) in severities and severities[id(row)] <= limit
    mark_best([row for row in rows if row.competitive])


def mark_best(rows: Sequence[Row]) -> None:
    """Mark the best cell of each metric among all the rows, whatever was marked before."""
    for metric in METRICS:
        cells = [row.metrics[metric] for row in rows if metric in row.metrics]
        ranks = [_rank(cell, metric) for cell in cells if cell.mean is not None]
        for cell in cells:
            cell.best = cell.mean is not None and _rank(cell, metric) == min(ranks)


def _rank(cell: Cell, metric: str) -> tuple[Decimal, Decimal]:
    """Return a key that is smaller for a better cell; without an interval a cell loses a tie."""
    assert cell.mean is not None
    mean = printed(cell.mean, 2)
    width = Decimal("Infinity") if cell.ci95 is None else printed(cell.ci95, 4)
    return (-mean if metric in HIGHER_IS_BETTER else mean), width
