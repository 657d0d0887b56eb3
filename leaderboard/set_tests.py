"""Tests over image sets: a value per set, few of them, and exact distributions in place of normal ones.

Shapes: n sets.
"""

from dataclasses import dataclass
from itertools import combinations_with_replacement

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import rankdata

MAX_SETS = 20  # 2^20 signs are enumerated
TEST_LEVEL = 0.05

Values = NDArray[np.float64]


@dataclass(frozen=True)
class SetTest:
    """Whether values over sets are above or below 0.

    Attributes:
        n: number of sets.
        effect: Hodges-Lehmann estimate, the median of all means of two values.
        low, high: its 95% interval, by the signed-rank test; infinite below six sets.
        p: two-sided, of the exact signed-rank test.
        p_flip: two-sided, of the exact sign-flip test of the mean.
    """

    n: int
    effect: float
    low: float
    high: float
    p: float
    p_flip: float


def set_test(values: ArrayLike) -> SetTest:
    """Return the test of values [n] over sets; NaN and p = 1 without any.

    References: Wilcoxon, Biometrics Bulletin 1, 1945; Hodges & Lehmann, Annals of Mathematical Statistics 34, 1963;
    Fisher, The Design of Experiments, 1935, section 21 (sign flips).
    """
    numbers = np.asarray(values, dtype=np.float64)
    if not len(numbers):
        return SetTest(0, np.nan, -np.inf, np.inf, 1.0, 1.0)
    low, high = interval(numbers)
    return SetTest(
        len(numbers), float(np.median(walsh(numbers))), low, high, signed_rank_p(numbers), sign_flip_p(numbers)
    )


def signed_rank_p(values: Values) -> float:
    """Return the two-sided p of the signed-rank test, exact also with ties: zeros are dropped, ties share a rank."""
    rounded = np.round(values, 9)  # a difference of equal means is 0 in whichever order they are summed
    decided = rounded[rounded != 0.0]
    return _enumerated_p(np.copysign(rankdata(np.abs(decided)), decided))


def sign_flip_p(values: Values) -> float:
    """Return the two-sided p of the mean, of all 2^n changes of signs."""
    return _enumerated_p(values)


def _enumerated_p(summands: Values) -> float:
    """Return the share of all signs of the summands whose sum is as far from 0 as theirs."""
    if len(summands) > MAX_SETS:
        raise ValueError(f"{len(summands)} sets; at most {MAX_SETS} can be enumerated")
    sums = np.zeros(1)
    for summand in np.abs(summands):
        sums = np.concatenate([sums + summand, sums - summand])
    observed = abs(summands.sum())
    return float(np.mean(np.abs(sums) >= observed - 1e-9 * max(1.0, observed)))


def walsh(values: Values) -> Values:
    """Return the means of all pairs of values, each also with itself, in ascending order."""
    return np.sort([(a + b) / 2.0 for a, b in combinations_with_replacement(values.tolist(), 2)])


def interval(values: Values, level: float = TEST_LEVEL) -> tuple[float, float]:
    """Return the values that the signed-rank test (without ties) does not reject at a level, from all that it might."""
    n = len(values)
    counts = np.ones(1)  # of sets of ranks by their sum
    for rank in range(1, n + 1):
        counts = np.pad(counts, (0, rank)) + np.pad(counts, (rank, 0))
    below = np.cumsum(counts) / 2.0**n
    num_rejected = int(np.searchsorted(below, level / 2.0, side="right"))  # sums with a two-sided p of at most `level`
    if not num_rejected:
        return -np.inf, np.inf
    means = walsh(values)
    return float(means[num_rejected - 1]), float(means[-num_rejected])
