"""Simulated tables of equal methods: at most one in twenty shows any significant difference, in any column."""

import numpy as np
import pytest

from hierbench.leaderboard.board import Board
from hierbench.leaderboard.letters import tie_groups
from hierbench.leaderboard.ranking import rank
from hierbench.leaderboard.statistics import METRICS, Row, summarise
from hierbench.leaderboard.ties import family_of, pairwise_p
from hierbench.sharing.site.comparisons import pairs_of

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


def board_of(values, methods, lacks=""):
    """The board of a simulated table [C, R, S], ranked; one of its methods lacks the last seed."""
    rows = []
    for method, of_row in zip(methods, values.swapaxes(0, 1), strict=True):
        seeds = SEEDS[: -1 if method == lacks else None]
        cells = {m: summarise(list(v[: len(seeds)])) for m, v in zip(METRICS, of_row, strict=True)}
        rows.append(Row("type-I", method, method, len(seeds), 5, cells, runs=[method], seeds=seeds))
    ranked, seeds = rank(rows)
    return Board("equal", "paper", "height", ranked, seeds=seeds)


@pytest.mark.parametrize(
    ("tables", "most"),
    [(100, 11), pytest.param(300, 22, marks=pytest.mark.thorough)],  # at 5 %: 5 and 15; two to three deviations more
)
def test_the_site_marks_a_difference_exactly_where_no_letter_is_shared(tables, most):
    """Of equal methods' tables at most one in twenty has a comparison with any mark, in any of its columns."""
    marked = 0
    for values in simulated("correlated", tables, 9, 5):
        board = board_of(values, ["ce", *"bcdefghi"])
        pairs = pairs_of(board)
        assert len(pairs) >= 8 and {pair.tests for pair in pairs} == {9 * 8 // 2 * 5}
        for pair in pairs:
            for gap in pair.gaps:
                groups = [set(row.metrics[gap.column.name].groups) for row in (pair.row, pair.reference)]
                assert all(groups) and gap.difference.significant == groups[0].isdisjoint(groups[1])
        marked += any(gap.difference.significant for pair in pairs for gap in pair.gaps)
    assert marked <= most


def test_the_site_marks_methods_that_differ_and_none_that_is_not_ranked():
    values = simulated("correlated", 1, 4, 5)[0]
    values[:, 3] += 200.0
    board = board_of(values, ["ce", "b", "c", "d"])
    (found,) = [pair for pair in pairs_of(board) if pair.row.method == "d" and pair.reference.method == "ce"]
    assert all(gap.difference.significant for gap in found.gaps) and len(found.gaps) == 5
    board = board_of(values, ["ce", "b", "c", "d"], lacks="d")
    (found,) = [pair for pair in pairs_of(board) if pair.row.method == "d" and pair.reference.method == "ce"]
    assert found.tests == 0 and all(gap.difference.n == 4 and gap.difference.p < 0.01 for gap in found.gaps)
    assert not any(gap.difference.significant or gap.difference.p_holm > 0 for gap in found.gaps)
