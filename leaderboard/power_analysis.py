"""How many seeds separate two rows: the power of the t-tests that `hierbench compare` uses, as a function of seeds."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hierbench.leaderboard.board_data import BoardData
from hierbench.leaderboard.columns import Column
from hierbench.leaderboard.paired import SIGNIFICANT, difference, known_values, matched_rows, values_by_seed
from hierbench.leaderboard.statistics import Row
from hierbench.utils.errors import UserError

MOST_SEEDS = 1000
POWER = 0.8
FAR = 30.0  # of a noncentrality


@dataclass(frozen=True)
class Effect:
    """A difference between two rows in one metric, and how much it varies from seed to seed.

    Attributes:
        difference: row minus reference.
        deviations: standard deviation (ddof 1) of the differences of equal seeds; or, for Welch's test, that of either
            row's values.
        n: runs of each row that this was estimated from.
        ci95: half-width of the 95% t-interval of the difference, None if any of it was assumed.
    """

    difference: float
    deviations: tuple[float, ...]
    n: int | None = None
    ci95: float | None = None

    @property
    def test(self) -> str:
        """The test that is planned for: "paired" or "welch"."""
        return "paired" if len(self.deviations) == 1 else "welch"

    @property
    def size(self) -> float | None:
        """Difference over standard deviation, of the differences or pooled over both rows; None where that is 0."""
        pooled = math.hypot(*self.deviations) / math.sqrt(len(self.deviations))
        return self.difference / pooled if pooled else None


@dataclass(frozen=True)
class SeedPlan:
    """The seeds that two rows need.

    Attributes:
        effect: to be found.
        seeds: of each row, None for more than 1,000.
        between: the seeds if the difference is at the ends of its 95% interval, fewer first; None if it was assumed.
        row, reference: None for an effect of no table.
        reached: power of this number of seeds, at least the requested one; None without a number.
    """

    effect: Effect
    seeds: int | None
    between: tuple[int | None, int | None] | None
    row: Row | None = None
    reference: Row | None = None
    reached: float | None = None


def compute_power(effect: Effect, seeds: ArrayLike, level: float = SIGNIFICANT) -> NDArray[np.float64]:
    """Return the chance of p < level in a two-sided t-test with a number of seeds of each row.

    1 - F(t) + F(-t), where F is the noncentral t distribution of noncentrality difference / error, t the quantile of
    1 - level / 2, error^2 = sum(s^2) / n, and the degrees of freedom are n - 1, or for two rows those of Welch &
    Satterthwaite, (n - 1) sum(s^2)^2 / sum(s^4): exact for paired differences that are normal, a close approximation
    for Welch's test (Cohen, Statistical Power Analysis for the Behavioral Sciences, 2nd ed. 1988, chapter 12).

    Args:
        effect: difference and deviations.
        seeds: numbers of seeds, at least 2, of any shape.
        level: of the test, at least 0.0001.
    """
    from scipy.special import chdtrc, comb, nctdtr, stdtrit

    n = np.asarray(seeds, dtype=np.float64)
    scale = max(effect.deviations)
    if not scale:  # see `hierbench.leaderboard.paired`: p then depends only on the number of seeds
        least = 0.5 ** (n - 1) if effect.test == "paired" else 2.0 / comb(2 * n, n)
        return np.asarray((effect.difference != 0) & (least < level), dtype=np.float64)
    variances = np.square(np.array(effect.deviations) / scale)
    shift = np.minimum(abs(effect.difference) / scale, 1e100) / np.sqrt(variances.sum() / n)
    freedom = (n - 1) * variances.sum() ** 2 / np.square(variances).sum()
    limit = stdtrit(freedom, 1 - level / 2)
    # SciPy's function is slow and NaN far from 0. There the chance of the wrong sign is nothing, and the normal part of
    # t varies little: its variation is that of the estimated deviation.
    missed = np.where(shift > FAR, chdtrc(freedom, freedom * (shift / limit) ** 2), 0.0)
    near = shift <= FAR
    wrong = shift <= 6.0
    missed[near] = nctdtr(freedom[near], shift[near], limit[near])
    missed[wrong] -= np.nan_to_num(nctdtr(freedom[wrong], shift[wrong], -limit[wrong]))
    power: NDArray[np.float64] = 1.0 - missed
    return power


def seeds_needed(effect: Effect, power: float = POWER, level: float = SIGNIFICANT) -> int | None:
    """Return the smallest number of seeds of each row with at least this power, None if 1,000 are too few."""
    few = 1
    many = MOST_SEEDS
    # More seeds have more power: few points between the bounds narrow them down, at a tenth of the cost of all.
    while many - few > 1:
        numbers = np.unique(np.geomspace(few, many, 8).astype(int))[1:]
        enough = np.flatnonzero(compute_power(effect, numbers, level) >= power)
        if not len(enough):
            return None
        first = int(enough[0])
        few = int(numbers[first - 1]) if first else few
        many = int(numbers[first])
    return many


def plan(effect: Effect, power: float = POWER, level: float = SIGNIFICANT) -> SeedPlan:
    """Return the seeds for an effect, and for the ends of the interval of its difference."""
    between = None
    if effect.ci95 is not None:
        ends = abs(effect.difference) + effect.ci95, max(abs(effect.difference) - effect.ci95, 0.0)
        few, many = (seeds_needed(Effect(end, effect.deviations), power, level) for end in ends)
        between = few, many
    seeds = seeds_needed(effect, power, level)
    return SeedPlan(
        effect, seeds, between, reached=None if seeds is None else float(compute_power(effect, seeds, level))
    )


def effect_of_values(row: Mapping[int, float], reference: Mapping[int, float]) -> Effect | None:
    """Return the effect that the values of two rows show, {seed: value}; None with fewer than two a side.

    Paired by seed where two or more are shared; NaN is left out.
    """
    first = known_values(row)
    other = known_values(reference)
    gap = difference(first, other)
    if gap is None:
        return None
    samples = [list(first.values()), list(other.values())]
    if gap.test == "paired":
        samples = [[first[seed] - other[seed] for seed in sorted(first.keys() & other.keys())]]
    deviations = tuple(float(np.std(sample, ddof=1)) for sample in samples)
    return Effect(gap.mean, deviations, gap.n, gap.ci95)


def effects_between(board: BoardData, names: tuple[str, str], column: Column) -> list[tuple[Row, Row, Effect]]:
    """Return the effects between two rows of a board of runs, of each type that both have.

    Args:
        board: of runs.
        names: of the row and of the reference, METHOD or METHOD:TYPE.
        column: a metric that the board has.

    Raises:
        UserError: no such row, a scored one, several, nothing to compare, or fewer than two seeds with a value.
    """
    effects = []
    board.refuse_scored(names)
    for row, reference in matched_rows(board.of_runs.rows, names[1], names[:1]):
        effect = effect_of_values(*(values_by_seed(side, [column.name])[column.name] for side in (row, reference)))
        if effect is None:
            raise UserError(
                f"{row.method}:{row.type} and {reference.method}:{reference.type} have fewer than two seeds each with "
                f"{column.name}"
            )
        effects.append((row, reference, effect))
    return effects
