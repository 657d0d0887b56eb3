"""Sets with a guarantee: the worked examples, covers by brute force, and coverage over random splits."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from scipy.stats import betabinom

from hierbench import Hierarchy
from hierbench.answers import conformal_sets
from hierbench.answers.conformal import (
    SetScore,
    class_scores,
    coverage_interval,
    quantile,
    set_nodes,
    sets_below,
    summarise_sets,
    target_scores,
)
from tests.answers.reference import PathTree
from tests.answers.test_rules import EXAMPLES, NODES_OF_T, T
from tests.support.reference import ragged_trees

ROWS = torch.tensor(EXAMPLES[:3], dtype=torch.float64)
GENERATOR = np.random.default_rng(0)
WIDE = Hierarchy.from_paths(
    {f"a{i}": ("A", f"a{i}") for i in range(1, 7)} | {f"b{i}": ("B", f"b{i}") for i in range(1, 5)}
)
WIDE_ROW = torch.tensor([[0.3, 0.2, 0.05, 0, 0, 0, 0.25, 0.12, 0.04, 0.04]], dtype=torch.float64)


def scores_of(row, tree, nodes):
    every = row.expand(tree.num_classes, -1)
    return target_scores(every, torch.arange(tree.num_classes), tree, SetScore("nodes", nodes), GENERATOR).tolist()


def test_worked_scores_of_classes():
    assert class_scores(ROWS[:1], SetScore("aps"), GENERATOR)[0].tolist() == pytest.approx([0.4, 1, 0.7, 0.9])
    raps = SetScore("raps", penalty=0.1, num_free=1)
    assert class_scores(ROWS[:1], raps, GENERATOR)[0].tolist() == pytest.approx([0.4, 1.3, 0.8, 1.1])
    for bound, size in ((0.65, 1), (0.75, 2), (0.85, 3)):
        sets = sets_below(ROWS[:1], torch.full((4,), bound), T, SetScore("lac"), GENERATOR)
        assert sets[0, [0, 2, 3, 1]].tolist() == [True] * size + [False] * (4 - size)
    aps = sets_below(ROWS[:1], torch.full((4,), 0.75), T, SetScore("aps"), GENERATOR)
    assert aps[0].tolist() == [True, False, True, False]  # not up to the first class that exceeds the bound


@pytest.mark.parametrize(
    ("row", "nodes", "expected"),
    [
        (0, 1, [0.4, 1, 1, 1]),
        (0, 2, [0.4, 1, 0.7, 0.9]),
        (2, 1, [0.6, 0.8, 1, 1]),
        (2, 2, [0.6, 0.8, 0.95, 1]),
    ],
)
def test_worked_scores_of_nodes(row, nodes, expected):
    assert scores_of(ROWS[row : row + 1], T, nodes) == pytest.approx(expected)


def test_three_nodes_whose_covers_are_not_nested():
    """The cover of five classes has less probability than that of four; its score is the larger of the two."""
    assert scores_of(WIDE_ROW, WIDE, 3)[2] == pytest.approx(0.95)
    sets = sets_below(WIDE_ROW, torch.full((10,), 0.93), WIDE, SetScore("nodes", 3), GENERATOR)
    assert sets[0].nonzero()[:, 0].tolist() == [0, 1, 6]


def smallest_cover(paths, classes, most, p):
    """The smallest set of classes below at most `most` nodes, by trying all; of equal ones the most probable."""
    found = []
    for num in range(1, most + 1):
        for nodes in itertools.combinations(paths.nodes, num):
            covered = {leaf for n in nodes for leaf in paths.below[n]}
            if covered >= set(classes):
                found.append((len(covered), -sum(p[leaf] for leaf in covered), covered))
    return min(found, key=lambda cover: cover[:2])[2]


SIX = Hierarchy.from_paths({f"c{number}": ("ab"[number > 2], f"c{number}") for number in range(6)})


@settings(max_examples=30)
@given(ragged_trees(), st.integers(0, 2**31))
@example(SIX, 0)  # a class that a cover holds is left out of the next unless it is counted
def test_scores_equal_brute_force(tree, seed):
    assume(tree.num_classes <= 8)
    paths = PathTree(tree)
    row = np.random.default_rng(seed).dirichlet(np.ones(tree.num_classes))
    order = np.argsort(-row).tolist()
    for most in (1, 2, 3):
        covers = [smallest_cover(paths, order[: place + 1], most, row) for place in range(len(order))]
        masses = np.maximum.accumulate([sum(row[leaf] for leaf in cover) for cover in covers])
        scores = scores_of(torch.from_numpy(row)[None], tree, most)
        assert [scores[y] for y in order] == pytest.approx(masses)


def test_the_quantile_is_a_score_of_the_sorted_array():
    for n, alpha, place in ((9, 0.2, 8), (9, 0.1, 9), (19, 0.05, 19), (1000, 0.1, 901)):
        assert quantile(torch.arange(1, n + 1).double(), alpha) == place
    for n, alpha in ((3, 0.2), (8, 0.1), (18, 0.05), (98, 0.01)):
        assert quantile(torch.arange(n).double(), alpha) == torch.inf


KINDS = [{"score": "lac"}, {"score": "aps"}, {"score": "aps", "randomized": True}, {"score": "raps"}]
KINDS += [{"score": "raps", "randomized": True}, {"score": "nodes"}, {"score": "nodes", "nodes": 2}]


@pytest.fixture(scope="module")
def drawn():
    """Probabilities of an overconfident model on a tree of 12 classes, and targets of the true ones."""
    tree = Hierarchy.from_paths({f"c{i}": (f"g{i // 6}", f"f{i // 3}", f"c{i}") for i in range(12)})
    generator = torch.Generator().manual_seed(1)
    logits = 2 * torch.randn(400, 12, generator=generator, dtype=torch.float64)
    return tree, (1.5 * logits).softmax(1), torch.multinomial(logits.softmax(1), 1, generator=generator)[:, 0]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: "-".join(map(str, kind.values())))
def test_coverage_over_random_splits(drawn, kind):
    """Its mean over 1,000 splits is at least 1 - alpha up to four standard errors; above it only where scores tie."""
    tree, probabilities, targets = drawn
    options = {"kind": kind["score"], **{name: value for name, value in kind.items() if name != "score"}}
    values = target_scores(probabilities, targets, tree, SetScore(**options), np.random.default_rng(2))
    rng = np.random.default_rng(3)
    n, alpha, coverages = 99, 0.1, []
    for _ in range(1000):
        order = torch.from_numpy(rng.permutation(len(values)))
        bound = quantile(values[order[:n]], alpha)
        coverages.append(float((values[order[n:]] <= bound).double().mean()))
    exact = betabinom(len(values) - n, 90, 10)
    low = 0.9 - 4 * exact.std() / (len(values) - n) / np.sqrt(1000)
    assert np.mean(coverages) >= low
    if len(values.unique()) == len(values):
        assert np.mean(coverages) <= 0.9 + (0.9 - low)
    sets = conformal_sets(probabilities[:n], targets[:n], probabilities[n:], tree, alpha, **kind)
    covered = sets[torch.arange(len(sets)), targets[n:]].double().mean()
    assert sets.dtype == torch.bool and covered >= 0.9 - 4 * exact.std() / (len(values) - n)


@pytest.mark.parametrize("nodes", [1, 2, 3])
def test_sets_of_nodes_hold_the_classes_below_the_bound_and_few_nodes(drawn, nodes):
    tree, probabilities, _ = drawn
    paths = PathTree(tree)
    for bound in (0.8, 0.95):
        sets = sets_below(probabilities[:10], torch.full((12,), bound), tree, SetScore("nodes", nodes), GENERATOR)
        for row, chosen in zip(probabilities[:10], sets, strict=True):
            below = {y for y, score in enumerate(scores_of(row[None], tree, nodes)) if score <= bound}
            classes = set(chosen.nonzero()[:, 0].tolist())
            assert classes >= below and smallest_cover(paths, classes, nodes, row.tolist()) == classes


def test_one_node_of_a_set():
    sets = torch.tensor([[True, False, True, False], [True, True, False, False], [False] * 4])
    assert set_nodes(sets, ROWS, T).tolist() == [NODES_OF_T["r"], NODES_OF_T["A"], NODES_OF_T["a1"]]
    summary = summarise_sets(sets, torch.tensor([0, 0, 0]), ROWS, T, 0.1, 100)
    assert (summary.coverage, summary.size, summary.height, summary.roots, summary.empty) == pytest.approx(
        (2 / 3, 4 / 3, 1.0, 1 / 3, 1 / 3)
    )


def test_groups_have_a_quantile_each(drawn):
    """A group with fewer than nine examples at 90% holds every class of it in every set."""
    tree, probabilities, targets = drawn
    few = (targets[:200] >= 6) | (torch.arange(200) < 8)
    sets = conformal_sets(probabilities[:200][few], targets[:200][few], probabilities[200:], tree, 0.1, group_level=1)
    assert few.sum() > 20 and bool(sets[:, :6].all()) and not bool(sets[:, 6:].all())
    again = conformal_sets(probabilities[:200], targets[:200], probabilities[200:], tree, 0.1, group_level=1)
    for group in (slice(0, 6), slice(6, 12)):
        ours = (targets[200:] >= group.start) & (targets[200:] < group.stop)
        assert again[ours, targets[200:][ours]].double().mean() > 0.8


def test_the_interval_of_a_coverage():
    assert coverage_interval(5, 1000, 0.1) == (1.0, 1.0)
    assert coverage_interval(1000, 1000, 0.1) == pytest.approx((0.873, 0.925), abs=1e-3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"alpha": 0.0}, "alpha must be between 0 and 1"),
        ({"score": "apps"}, "score must be one of"),
        ({"nodes": 0}, "nodes must be at least 1"),
        ({"group_level": 4}, "group_level must be from 1 to 3"),
        ({"score": "nodes", "group_level": 1}, "has one quantile"),
    ],
)
def test_mistakes_are_named(drawn, changes, message):
    tree, probabilities, targets = drawn
    arguments = {"alpha": 0.1} | changes
    with pytest.raises(ValueError, match=message):
        conformal_sets(probabilities[:50], targets[:50], probabilities[50:], tree, **arguments)
