"""Bootstrap intervals over examples. Shapes: N examples, R resamples."""

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from hierbench.metrics.sums import metrics_from_sums

CONFIDENCE = 0.95


def bootstrap_intervals(
    added: Tensor, ks: Sequence[int], resamples: int, seed: int = 0
) -> dict[str, tuple[float, float]]:
    """Return 95% percentile intervals of the metrics over examples drawn with replacement.

    Args:
        added: [N, 1 + len(ks)], see `sums.contributions`.
        ks: as given there.
        resamples: R >= 1.
        seed: of the draws.

    Returns:
        {metric: (low, high)}; NaN where no resample has a mistake, so that severity is undefined.
    """
    generator = np.random.default_rng(seed)
    num = len(added)
    values = added.double().numpy()  # sums of integers, exact below 2 ** 53
    totals = np.full((resamples, 1 + added.shape[1]), float(num))
    for row in range(resamples):
        times_drawn = np.bincount(generator.integers(num, size=num), minlength=num)
        totals[row, 1:] = times_drawn @ values
    tail = 50.0 * (1.0 - CONFIDENCE)
    intervals = {}
    for name, drawn in metrics_from_sums(totals.T, ks).items():
        defined = drawn[~np.isnan(drawn)]
        low, high = np.percentile(defined, [tail, 100.0 - tail]) if len(defined) else (np.nan, np.nan)
        intervals[name] = float(low), float(high)
    return intervals
