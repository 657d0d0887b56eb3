"""Whether mistakes respect a tree: the worked example, all exchanges of the classes, and trees of confusions."""

import itertools

import numpy as np
import pytest
from hypothesis import given

from hierbench.answers import tree_tests
from hierbench.answers.tree_tests import confusion_tree, mean_distance, tree_test
from tests.answers.test_rules import T
from tests.support.reference import ragged_trees

TARGETS, PREDICTED = np.array([0, 0, 2, 1, 3]), np.array([1, 1, 3, 3, 3])


def test_worked_example(monkeypatch):
    done = tree_test(PREDICTED, TARGETS, T)
    assert (done.severity, done.expected) == pytest.approx((1.25, 5 / 3))
    wrong = TARGETS != PREDICTED
    every = []
    for order in itertools.permutations(range(4)):
        exchanged = np.array(order)
        every.append(T.distances[exchanged[TARGETS[wrong]], exchanged[PREDICTED[wrong]]].mean())
    assert np.mean(every) == pytest.approx(done.expected)
    assert sorted(set(every)) == [1.25, 1.75, 2.0]
    assert np.mean(np.array(every) <= 1.25) == pytest.approx(1 / 3)
    assert done.p == pytest.approx(1 / 3, abs=0.06)  # 999 of the 24, four standard errors
    assert tree_test(PREDICTED, TARGETS, T, permutations=19).p >= 1 / 20
    monkeypatch.setattr(tree_tests, "MATRIX_CLASSES", 0)  # as for a larger tree
    assert tree_test(PREDICTED, TARGETS, T) == done


@given(ragged_trees())
def test_the_mean_distance_of_two_classes(tree):
    num = tree.num_classes
    pairs = [tree.distances[i, j] for i in range(num) for j in range(num) if i != j]
    assert mean_distance(tree) == pytest.approx(np.mean(pairs))


def test_p_is_uniform_when_the_classes_are_exchanged_at_random(cifar100):
    rng = np.random.default_rng(0)
    targets, predicted = rng.integers(100, size=(2, 400))
    every = []
    for seed in range(60):
        exchanged = rng.permutation(100)
        every.append(tree_test(exchanged[predicted], exchanged[targets], cifar100, permutations=99, seed=seed).p)
    assert abs(np.mean(every) - 0.5) < 4 * np.sqrt(1 / 12 / 60)
    assert np.mean(np.array(every) <= 0.2) < 0.2 + 4 * np.sqrt(0.16 / 60)


def test_without_mistakes_there_is_no_severity():
    done = tree_test(TARGETS, TARGETS, T)
    assert np.isnan(done.severity) and np.isnan(done.p)


def test_classes_that_are_confused_are_joined_first():
    tree = confusion_tree(np.array([1, 0, 3, 2, 0]), np.array([0, 1, 2, 3, 3]), T)
    assert tree.classes == T.classes and tree.distances[0, 1] == tree.distances[2, 3] == 1
    assert tree.distances[0, 3] == 2
