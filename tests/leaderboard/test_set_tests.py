"""Exact tests over image sets, against scipy, against enumeration and against what they are to guarantee."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import wilcoxon

from hierbench.leaderboard.set_tests import interval, set_test, sign_flip_p, signed_rank_p, walsh

VALUES = st.lists(st.integers(-40, 40), min_size=1, max_size=9)


@given(st.lists(st.integers(-5_000_000, 5_000_000).filter(bool), min_size=1, max_size=12, unique_by=abs))
def test_without_ties_the_signed_rank_test_is_scipys(millionths):
    values = np.array(millionths) / 1e6
    assert signed_rank_p(values) == pytest.approx(wilcoxon(values, method="exact").pvalue)


def test_equal_means_summed_in_another_order_are_zeros_and_ties():
    assert (
        signed_rank_p(np.array([1e-16, 0.5, 0.5 + 1e-16, 2.0])) == signed_rank_p(np.array([0.0, 0.5, 0.5, 2.0])) == 0.25
    )


@given(VALUES)
def test_with_ties_and_zeros_it_counts_all_signs(values):
    decided = np.array([value for value in values if value], dtype=float)
    ranks = np.array([np.mean(np.flatnonzero(np.sort(abs(decided)) == abs(v)) + 1) for v in decided])
    sums = [sum(s * r for s, r in zip(signs, ranks, strict=True)) for signs in product((1, -1), repeat=len(ranks))]
    observed = abs(sum(np.sign(v) * r for v, r in zip(decided, ranks, strict=True)))
    expected = np.mean([abs(total) >= observed - 1e-9 for total in sums])
    assert signed_rank_p(np.array(values, dtype=float)) == pytest.approx(expected)


@given(VALUES)
def test_the_sign_flip_test_enumerates_means(values):
    numbers = np.array(values, dtype=float)
    means = [np.mean(np.array(signs) * numbers) for signs in product((1, -1), repeat=len(values))]
    assert sign_flip_p(numbers) == pytest.approx(np.mean([abs(m) >= abs(numbers.mean()) - 1e-9 for m in means]))


@pytest.mark.parametrize("n", [6, 8, 11, 15])
def test_the_interval_is_what_the_test_does_not_reject(n):
    values = np.random.default_rng(n).normal(0.5, 1.0, n)
    result = set_test(values)
    inside = [signed_rank_p(values - (end + step)) for end, step in ((result.low, 1e-6), (result.high, -1e-6))]
    outside = [signed_rank_p(values - (end - step)) for end, step in ((result.low, 1e-6), (result.high, -1e-6))]
    assert min(inside) > 0.05 >= max(outside)
    assert result.effect == np.median([(a + b) / 2 for i, a in enumerate(values) for b in values[i:]])
    assert len(walsh(values)) == n * (n + 1) // 2


def test_few_sets_have_no_interval_and_none_no_effect():
    assert interval(np.arange(1.0, 6.0)) == (-np.inf, np.inf)
    assert set_test([]).p == 1.0 and np.isnan(set_test([]).effect)
    assert set_test([1.0] * 11).p == pytest.approx(2.0 / 2**11)
    with pytest.raises(ValueError, match="at most 20"):
        signed_rank_p(np.arange(1.0, 22.0))


def test_the_power_of_the_protocol():
    """As protocol.toml tells it, with fewer draws."""
    rng = np.random.default_rng(0)
    for effect, strictest in ((1.0, 0.41), (1.5, 0.84)):
        ps = [signed_rank_p(values) for values in rng.normal(effect, 1.0, (600, 11))]
        assert np.mean(np.array(ps) < 0.005) == pytest.approx(strictest, abs=0.06)
