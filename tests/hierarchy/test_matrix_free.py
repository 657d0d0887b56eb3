"""What is computed from the nodes of a tree, without a matrix of all distances, equals what the matrix gives."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hierbench import Hierarchy
from hierbench.hierarchy import distances_from, label_tree, levels
from hierbench.hierarchy.levels import classes_at_distances
from hierbench.hierarchy.roots import merges_of, merges_of_tree
from hierbench.metrics.hops import hops_scores
from tests.hierarchy.test_hierarchy import trees

CPU = torch.device("cpu")


@pytest.fixture(scope="module", autouse=True)
def _no_tree_is_small():
    before = levels.MATRIX_CLASSES
    levels.MATRIX_CLASSES = 0
    yield
    levels.MATRIX_CLASSES = before


@given(trees(), st.sampled_from(["height", "depth"]))
@settings(max_examples=40)
def test_distances_equal_those_of_the_matrix(paths, distance):
    tree = Hierarchy.from_paths(paths, distance)
    every = np.arange(tree.num_classes)
    np.testing.assert_array_equal(tree.distances_between(every[:, None], every), tree.distances)
    assert tree.distances_between(0, 1) == tree.distances[0, 1]
    np.testing.assert_array_equal(distances_from(torch.from_numpy(every), tree), tree.distances)
    counts = [np.bincount(row, minlength=tree.height + 1) for row in tree.distances]
    np.testing.assert_array_equal(classes_at_distances(tree, CPU), counts)


@given(trees(), st.sampled_from(["height", "depth"]))
@settings(max_examples=40)
def test_clusters_equal_those_of_the_matrix(paths, distance):
    tree = Hierarchy.from_paths(paths, distance)
    ours, theirs = merges_of_tree(tree), merges_of(tree.distances)
    assert [merge.distance for merge in ours] == [merge.distance for merge in theirs]
    assert all((one.cluster == other.cluster).all() for one, other in zip(ours, theirs, strict=True))


def test_three_thousand_classes_never_ask_for_the_matrix(monkeypatch):
    """Of a ragged tree; ranks, HOPS and its best ranking are those of the definition."""
    monkeypatch.setattr(levels, "MATRIX_CLASSES", label_tree.MATRIX_CLASSES)
    rng = np.random.default_rng(0)
    paths = {f"c{i}": (f"a{i % 3}", f"b{i % 30}", *([f"g{i % 600}"] if i % 7 else []), f"c{i}") for i in range(3000)}
    tree = Hierarchy.from_paths(paths)
    expected = tree.distances[[5, 1234]].copy()
    del tree.__dict__["distances"]
    monkeypatch.setattr(label_tree, "distance_matrix", None)
    np.testing.assert_array_equal(distances_from(torch.tensor([5, 1234]), tree), expected)
    scores = -torch.from_numpy(expected).double() - 1e-6 * torch.from_numpy(rng.random(expected.shape))
    assert hops_scores(scores, torch.tensor([5, 1234]), tree).tolist() == [1.0, 1.0]
    assert tree.digest() == Hierarchy.from_paths(paths).digest()


@pytest.mark.parametrize("change", ["class", "level", "distance"])
def test_the_digest_of_a_large_tree_depends_on_all_of_it(monkeypatch, change):
    monkeypatch.setattr(label_tree, "MATRIX_CLASSES", 2)
    paths = {"a": ("x", "a"), "b": ("x", "b"), "c": ("c",), "d": ("y", "z", "d"), "e": ("y", "z", "e")}
    digest = Hierarchy.from_paths(paths).digest()
    if change == "class":
        paths = {"f": ("x", "f"), **{name: path for name, path in paths.items() if name != "a"}}
    elif change == "level":
        paths["c"] = ("x", "c")
    assert digest != Hierarchy.from_paths(paths, "depth" if change == "distance" else "height").digest()
    monkeypatch.undo()
    assert digest != Hierarchy.from_paths(paths).digest()
