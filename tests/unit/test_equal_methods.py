"""Simulated tables of equal methods: at most one in twenty shows any significant difference, in any column."""

import numpy as np
import pytest

from hierbench.leaderboard.letters import tie_groups
from hierbench.leaderboard.ties import family_of, pairwise_p

TABLES = 1000
MOST_FALSE = 64  # of 1,000 tables at 5 %: 50, and twice the standard deviation of 6.9
SEEDS = [0, 1, 2, 3, 4]


def simulated(kind, tables, num_rows, num_seeds, counts=None):
    """Tables of equal methods [T, C, R, S] with five metrics; of `counts` each row has so many seeds by chance."""
    rng = np.random.default_rng(6)
    shape = (tables, 5, num_rows, num_seeds)
    if kind == "correlated":  # metrics of one run, and what the runs of one seed share
        one_run, one_seed = rng.normal(0, 1, (tables, 1, *shape[2:])), rng.normal(0, 2, (tables, 1, 1, num_seeds))
        values = 0.95 * one_run + one_seed + 0.3 * rng.normal(0, 1, shape)
    else:  # accuracies on 480 images, which are often equal
        values = rng.binomial(480, 0.6, shape) / 4.8
    if counts is not None:
        held = rng.choice(counts, (tables, 1, num_rows, 1))
        values = np.where(
            rng.permuted(np.broadcast_to(np.arange(num_seeds), values[:, :1].shape), axis=3) < held, values, np.nan
        )
    return values


@pytest.mark.parametrize(
    ("kind", "num_rows", "num_seeds", "counts"),
    [("correlated", 9, 5, None), ("correlated", 27, 3, None), ("correlated", 9, 8, (2, 3, 5)), ("images", 9, 3, None)],
)
def test_tables_of_equal_methods_show_no_difference(kind, num_rows, num_seeds, counts):
    """Of 1,000 tables at most one in twenty shows any significant difference, in any of its columns."""
    values = simulated(kind, TABLES, num_rows, num_seeds, counts)
    p, paired = (
        found.reshape(TABLES, 5, num_rows, num_rows) for found in pairwise_p(values.reshape(-1, *values.shape[2:]))
    )
    upper = np.triu(np.ones((num_rows, num_rows), dtype=bool), 1)
    tests = (~np.isnan(p[:, :, upper])).sum(axis=(1, 2))
    least = np.nanmin(p[:, :, upper], axis=(1, 2)) * tests
    assert (counts is None) == paired[:, :, upper].all()
    differs = least < 0.05  # Holm's first step
    for table in [*np.flatnonzero(differs), *range(10)]:
        family = family_of(values[table])
        assert family.differ.any() == differs[table] and family.number == tests[table]
        assert len(tie_groups(family.differ[family.differ.any(axis=(1, 2)).argmax()])) > 1 or not differs[table]
    assert differs.sum() <= MOST_FALSE
    assert differs.sum() > 8 or kind == "images" or counts  # Welch's and those of few images are cautious
