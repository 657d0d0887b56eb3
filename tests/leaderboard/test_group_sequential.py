"""The design of `hierbench separate`: its level against simulation, its power and cost, its intervals."""

import math

import numpy as np
import pytest
import scipy.stats

from hierbench.leaderboard.group_sequential import (
    LEVEL,
    Design,
    adjusted_p,
    conclusion,
    crossing_probability,
    look_at,
    make_design,
)
from hierbench.leaderboard.power_analysis import Effect, compute_power

PATHS = 40_000  # simulated: a share of 5% has a standard error of 0.11 %
DESIGNS = [(3, 4), (3, 10), (5, 20), (5, 50)]


def stopped(differences, design):
    """Whether each path of differences [B, N] is separated at any look, and at how many seeds it stops.

    Written independently of the design: p of SciPy's t-test of the first n differences.
    """
    separated = np.zeros(len(differences), dtype=bool)
    seeds = np.full(len(differences), design.most)
    for n in range(design.start, design.most + 1):
        first = differences[:, :n]
        mean, error = first.mean(axis=1), first.std(axis=1, ddof=1) / math.sqrt(n)
        t = np.divide(mean, error, out=np.zeros_like(mean), where=error > 1e-12 * np.abs(mean))
        now = ~separated & (2 * scipy.stats.t.sf(np.abs(t), n - 1) < design.nominal)
        seeds[now] = n
        separated |= now
    return separated, seeds


@pytest.mark.parametrize(("start", "most"), DESIGNS)
def test_equal_rows_are_separated_in_five_of_a_hundred_cases(start, most):
    design = make_design(start, most)
    assert crossing_probability(start, most, design.nominal) == pytest.approx(LEVEL, abs=1e-6)
    rng = np.random.default_rng(11)
    shared = rng.normal(0, 4, (PATHS, most))  # what a seed has in common
    first, second = shared + rng.normal(0, 1, (PATHS, most)), shared + rng.normal(0, 3, (PATHS, most))
    rate = stopped(first - second, design)[0].mean()
    assert rate == pytest.approx(LEVEL, abs=0.0045), rate  # four standard errors


def test_one_look_is_the_t_test_and_more_are_between_it_and_bonferroni():
    assert make_design(5, 5).nominal == LEVEL and crossing_probability(5, 5, LEVEL) == pytest.approx(LEVEL, abs=1e-9)
    nominal = [make_design(3, most).nominal for most in (4, 10, 20, 40)]
    assert nominal == sorted(nominal, reverse=True)
    assert all(LEVEL / (most - 2) < value < LEVEL for most, value in zip((4, 10, 20, 40), nominal, strict=True))
    # Two looks, by integration over the plane of (t at the first, the new difference): SciPy knows no design.
    rng = np.random.default_rng(12)
    level = stopped(rng.normal(size=(400_000, 4)), Design(3, 4, 0.03))[0].mean()
    assert crossing_probability(3, 4, 0.03) == pytest.approx(level, abs=0.0015)


def test_other_levels_and_repeatable_numbers():
    assert crossing_probability(3, 12, make_design(3, 12, 0.01).nominal) == pytest.approx(0.01, abs=1e-6)
    assert make_design(3, 10).nominal == pytest.approx(0.012050, abs=2e-6)  # the number of docs/seeds.md


@pytest.mark.parametrize(
    ("draw", "highest"),
    [
        (lambda rng, shape: rng.standard_t(3, shape), 0.05),  # heavy tails
        (lambda rng, shape: rng.normal(0, 1, shape) * np.where(rng.random(shape) < 0.5, 1, 3), 0.055),  # two variances
        (lambda rng, shape: rng.gamma(2, 1, shape) - rng.gamma(2, 1, shape), 0.05),  # two equally skewed rows
        (lambda rng, shape: rng.gamma(2, 1, shape) - 2 - 2 * (rng.gamma(2, 1, shape) - 2), 0.075),  # unequally skewed
        (lambda rng, shape: np.round(rng.normal(0, 2, shape) / 0.26) * 0.26, 0.055),  # top-1 of 384 images
    ],
)
def test_differences_that_are_not_normal(draw, highest):
    rng = np.random.default_rng(13)
    for start, most in ((3, 10), (5, 20)):
        assert stopped(draw(rng, (PATHS, most)), make_design(start, most))[0].mean() < highest


def test_power_and_seeds_against_a_test_of_fixed_size():
    """What stopping early costs in power, and saves in seeds: the numbers of docs/seeds.md."""
    rng, design, results = np.random.default_rng(14), make_design(5, 20), {}
    for size in (0.5, 1.0, 2.0):
        separated, seeds = stopped(rng.normal(size, 1, (PATHS, 20)), design)
        results[size] = float(separated.mean()), float(seeds.mean())
        fixed = float(compute_power(Effect(size, (1.0,)), 20))
        assert results[size][0] < fixed + 0.01 and results[size][1] < 20
    assert results[0.5] == pytest.approx((0.41, 16.9), abs=0.1)
    assert results[1.0] == pytest.approx((0.955, 10.4), abs=0.1)
    assert results[2.0] == pytest.approx((1.0, 5.8), abs=0.1)


def test_looking_with_the_ordinary_level_finds_almost_four_times_as_many():
    """Why there is a design at all: p < 0.05 at any of 16 looks."""
    rate = stopped(np.random.default_rng(15).normal(size=(PATHS, 20)), Design(5, 20, 0.05))[0].mean()
    assert 0.18 < rate < 0.2 and crossing_probability(5, 20, 0.05) == pytest.approx(rate, abs=0.007)


def test_intervals_of_all_looks_hold_together():
    rng, design = np.random.default_rng(16), make_design(3, 8)
    missed = 0
    paths = rng.normal(0.7, 2.0, (4000, 8))
    for path in paths:
        looks = [look_at(path[:n], design.nominal) for n in range(3, 9)]
        missed += any(abs(look.mean - 0.7) > look.ci for look in looks)
        assert all((look.p < design.nominal) == (abs(look.mean) > look.ci) for look in looks)
    assert missed / len(paths) == pytest.approx(LEVEL, abs=0.014)


def test_adjusted_p():
    design = make_design(3, 10)
    at_level = [look_at(np.array(x), design.nominal) for x in ([1.0, 1.1, 0.9], [0.3, -0.2, 0.1, 0.4])]
    assert adjusted_p(design, at_level) == crossing_probability(3, 10, at_level[0].p) > at_level[0].p
    assert (adjusted_p(design, at_level) < LEVEL) == (at_level[0].p < design.nominal)
    equal = look_at(np.zeros(4), design.nominal)
    assert equal.p == 1.0 and look_at(np.full(4, 0.3), design.nominal).p == 1.0 and adjusted_p(design, [equal]) == 1.0
    t = scipy.stats.ttest_1samp([0.3, -0.2, 0.1, 0.4], 0)
    assert at_level[1].p == pytest.approx(t.pvalue) and at_level[1].mean == pytest.approx(0.15)


def test_the_conclusion():
    names, design = ("a:type-I", "b:type-I"), make_design(3, 6)
    assert "no look was made; the first is at 3 seeds" in conclusion(design, [], names, "top1")
    looks = [look_at(np.array([0.3, -0.1, 0.2]), design.nominal)]
    assert "are not separated in top1 after 3 seeds: +0.1333 +/-" in conclusion(design, looks, names, "top1")
    looks.append(look_at(np.array([0.30, 0.31, 0.29, 0.30]), design.nominal))
    assert "are separated in top1 after 4 seeds: +0.3 +/- 0.0" in conclusion(design, looks, names, "top1")
    assert adjusted_p(design, looks) < 0.01 and look_at(np.array([0.5]), design.nominal).p == 1.0
