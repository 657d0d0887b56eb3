"""Metrics of classes ranked elsewhere, and their bootstrap intervals over examples.

Shapes: N examples, K classes, k ranked classes, M = 1 + len(ks) sums, R resamples.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hierbench.hierarchy.tree import Hierarchy, IntArray
from hierbench.metrics.sums import metrics_from_counts

CHUNK = 8192  # examples at a time, which bounds the memory
CONFIDENCE = 0.95


def contributions(classes: IntArray, targets: IntArray, hierarchy: Hierarchy, ks: Sequence[int]) -> IntArray:
    """Return what each example adds to the sums of `metrics_from_counts`.

    Args:
        classes: [N, k] ranked class indices, best first.
        targets: [N] class indices.
        hierarchy: over the K classes.
        ks: of hierdist@k, each at most k; 1 is among them.

    Returns:
        [N, M] int64: 1 if correct, then for each of `ks` the sum of the distances of the top classes.
    """
    sums = np.empty((len(classes), 1 + len(ks)), dtype=np.int64)
    sums[:, 0] = classes[:, 0] == targets
    for start in range(0, len(classes), CHUNK):
        rows = slice(start, start + CHUNK)
        distances = hierarchy.distances[targets[rows, None], classes[rows, : max(ks)]]
        sums[rows, 1:] = distances.cumsum(axis=1)[:, [k - 1 for k in ks]]
    return sums


def metrics_of(sums: IntArray, ks: Sequence[int]) -> dict[str, float]:
    """Return the metrics of `evaluate` from the contributions [N, M] of all examples."""
    return metrics_from_counts([len(sums), *sums.sum(axis=0).tolist()], ks)


def bootstrap_intervals(
    sums: IntArray, ks: Sequence[int], resamples: int, seed: int = 0
) -> dict[str, tuple[float, float]]:
    """Return 95% percentile intervals of the metrics over examples drawn with replacement.

    Args:
        sums: [N, M] contributions, see `contributions`.
        ks: as given there.
        resamples: R >= 1.
        seed: of the draws.

    Returns:
        {metric: (low, high)}; NaN where no resample has a mistake, so that severity is undefined.
    """
    generator, num = np.random.default_rng(seed), len(sums)
    values = sums.astype(np.float64)  # sums of integers, exact below 2 ** 53
    totals = np.empty((resamples, sums.shape[1]))
    for row in range(resamples):
        times_drawn = np.bincount(generator.integers(num, size=num), minlength=num)
        totals[row] = times_drawn @ values
    correct = totals[:, 0]
    mistakes = num - correct
    with np.errstate(invalid="ignore", divide="ignore"):
        drawn: dict[str, NDArray[np.float64]] = {
            "top1": 100.0 * correct / num,
            "mistake_severity": np.where(mistakes > 0, totals[:, 1 + ks.index(1)] / mistakes, np.nan),
        }
    drawn |= {f"hierdist@{k}": totals[:, 1 + place] / (k * num) for place, k in enumerate(ks)}
    return {name: _interval(of_metric[~np.isnan(of_metric)]) for name, of_metric in drawn.items()}


def _interval(values: NDArray[np.float64]) -> tuple[float, float]:
    if not len(values):
        return float("nan"), float("nan")
    tail = 50.0 * (1.0 - CONFIDENCE)
    low, high = np.percentile(values, [tail, 100.0 - tail])
    return float(low), float(high)
