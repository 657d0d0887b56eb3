"""Group-sequential t-tests of two rows: looks after every seed that together separate equal rows in 5% of cases.

Pocock's design (Biometrika 64, 1977) with the significance-level approach for t-tests (Jennison & Turnbull, Group
Sequential Methods with Applications to Clinical Trials, 2000, sections 4.4 and 11.3): after n seeds the two rows are
separated if the two-sided p of the paired t-test is below a nominal level, the same at each look. The nominal level is
such that equal rows are separated at any of the looks with the probability `LEVEL`.

For differences x_1, x_2, ... that are normal with mean 0 the path of t statistics does not depend on their variance,
so this probability can be computed without any knowledge of the rows. Let u_n = sum(x) / sqrt(sum(x^2)), a function of
the t statistic: t^2 = (n - 1) u^2 / (n - u^2). As sum(x^2) is independent of the direction of (x_1, ..., x_n), the u_n
are a Markov chain,

    u_{n+1} = u_n cos(theta) + sin(theta),   tan(theta) = x_{n+1} / sqrt(x_1^2 + ... + x_n^2),

where theta has the density cos(theta)^(n-1) / B on (-pi/2, pi/2). One-dimensional quadratures from the last look to the
first give the probability that no look separates.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import CubicSpline
from scipy.optimize import root_scalar
from scipy.special import betaln

from hierbench.leaderboard.statistics import t_quantile, two_sided_p

LEVEL = 0.05
FEWEST = 3  # seeds at the first look: with two, the t-test has hardly any power, and costs the others some of theirs
MOST = 1000
POINTS, NODES = 96, 48  # of u, and of an interval of theta
FAR = 7.0  # standard deviations of theta, about 1 / sqrt(n), beyond which nothing is left
_X, _W = np.polynomial.legendre.leggauss(NODES)


@dataclass(frozen=True)
class Design:
    """Looks after every seed from `start` to `most`; rows differ at a look with p below `nominal`."""

    start: int
    most: int
    nominal: float


@dataclass(frozen=True)
class Look:
    """The paired differences of the first n seeds.

    Attributes:
        n: differences with a value.
        mean: of the differences.
        ci: half-width of the repeated confidence interval: those of all looks hold together with 1 - level.
        p: of the t-test, to be compared with the nominal level.
    """

    n: int
    mean: float
    ci: float
    p: float


@lru_cache
def make_design(start: int, most: int, level: float = LEVEL) -> Design:
    """Return the design with the nominal level for which equal rows are separated with probability `level`."""
    if start == most:
        return Design(start, most, level)
    # Near the root, where both logarithms are nearly linear.
    guess = math.log(level) - 0.55 * math.log(most - start + 1)
    solution = root_scalar(
        lambda x: math.log(crossing_probability(start, most, math.exp(x)) / level), x0=guess, x1=guess + 0.1, xtol=1e-5
    )
    return Design(start, most, math.exp(float(solution.root)))


def crossing_probability(start: int, most: int, nominal: float) -> float:
    """Return the probability that any look at equal rows has a p below the nominal level."""
    limits = [_limit(n, nominal) for n in range(start, most + 1)]
    stay = None  # as a function of u at a look that does not separate: that no later one does
    for n in range(most - 1, start - 1, -1):
        stay = _stay_probability(n, limits[n - start], limits[n + 1 - start], stay)
    scale = math.asin(min(1.0, limits[0] / math.sqrt(start)))
    density = np.cos(scale * _X) ** (start - 2) * math.exp(-betaln(0.5, (start - 1) / 2))
    u = math.sqrt(start) * np.sin(scale * _X)
    later = np.ones_like(u) if stay is None else stay(np.abs(u))
    return 1.0 - float((_W * density * later).sum() * scale)


def _limit(n: int, nominal: float) -> float:
    """Return the |u| of n differences at which p is the nominal level."""
    t = t_quantile(n - 1, 1 - nominal)
    return math.sqrt(n * t * t / (n - 1 + t * t))


def _stay_probability(n: int, limit: float, following: float, stay: CubicSpline | None) -> CubicSpline:
    """Return the probability of no crossing after n, given u at n, from that after n + 1; both are even in u."""
    u = np.linspace(0.0, limit, POINTS)[:, None]
    # u' = sqrt(1 + u^2) sin(theta + phi) with tan(phi) = u: below the limit between two angles, and past a quarter turn
    # again, where a large difference of either sign dominates.
    phi = np.arctan(u)
    edge = np.arcsin(np.minimum(1.0, following / np.sqrt(1.0 + u * u)))
    far = min(math.pi / 2, FAR / math.sqrt(n))
    total = np.zeros(POINTS)
    for first, last in ((-edge, edge), (math.pi - edge, math.pi + edge)):
        low, high = np.clip(first, phi - far, phi + far), np.clip(last, phi - far, phi + far)
        if not (high > low).any():
            continue
        angle = (low + high) / 2 + (high - low) / 2 * _X
        density = np.cos(angle - phi) ** (n - 1) * math.exp(-betaln(0.5, n / 2))
        reached = np.abs(np.sqrt(1.0 + u * u) * np.sin(angle))
        later = np.ones_like(reached) if stay is None else stay(np.minimum(reached, following))
        total += (_W * density * later * (high - low) / 2).sum(axis=1)
    return CubicSpline(u[:, 0], total)


def look_at(differences: NDArray[np.float64], nominal: float) -> Look:
    """Return the t-test of the differences [n] of the first seeds; without any variance, or with one value, p is 1.

    Equal differences may be due to metrics that take few values, and a t-test says nothing of them.
    """
    n = len(differences)
    if n < 2:
        return Look(n, float(differences.sum()), 0.0, 1.0)
    mean, error = float(differences.mean()), float(differences.std(ddof=1)) / math.sqrt(n)
    width, flat = t_quantile(n - 1, 1 - nominal) * error, error <= 1e-12 * abs(mean)
    return Look(n, mean, width, 1.0 if flat else two_sided_p(mean, error, n - 1))


def adjusted_p(design: Design, looks: Sequence[Look]) -> float:
    """Return the smallest level at which the design with these looks separates the rows at one of the looks made.

    Below `LEVEL` exactly if one of them has a p below the nominal level: the repeated p-value of Jennison & Turnbull.
    """
    smallest = min(look.p for look in looks)
    return crossing_probability(design.start, design.most, smallest) if 0.0 < smallest < 1.0 else float(smallest)


def conclusion(design: Design, looks: Sequence[Look], names: tuple[str, str], metric: str) -> str:
    """Return the conclusion after the last look."""
    if not looks:
        return f"{names[0]} and {names[1]}: no look was made; the first is at {design.start} seeds."
    look, outcome = looks[-1], "separated" if looks[-1].p < design.nominal else "not separated"
    return (
        f"{names[0]} and {names[1]} are {outcome} in {metric} after {design.start + len(looks) - 1} seeds: "
        f"{look.mean:+.4g} +/- {look.ci:.2g} (repeated {100 * (1 - LEVEL):g}% interval), adjusted p "
        f"{adjusted_p(design, looks):.2g} for looks after every seed from {design.start} to {design.most}."
    )
