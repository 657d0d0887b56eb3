"""HiE and its coarse network against the published code's numbers, and against loops over a ragged tree."""

import math

import numpy as np
import pytest
import torch

from hierbench import Hierarchy
from hierbench.api.registry import find_method, is_installed, method_names
from hierbench.methods._coarse_ce import CoarseCrossEntropy
from hierbench.methods.hie import HierarchicalEnsemble
from hierbench.training.posthoc import rescored_chunks

RAGGED = Hierarchy.from_paths(
    {
        "ash": ("plant", "tree", "ash"),
        "fern": ("plant", "fern"),
        "owl": ("animal", "bird", "owl"),
        "cat": ("animal", "mammal", "feline", "cat"),
        "oak": ("plant", "tree", "oak"),
        "stone": ("stone",),
        "lynx": ("animal", "mammal", "feline", "lynx"),
        "moss": ("plant", "moss"),
    }
)
SIBLINGS = [["ash", "oak"], ["fern", "moss"], ["owl"], ["cat", "lynx"], ["stone"]]  # below each parent, the root's too


FLAT = Hierarchy.from_paths({"a": ("a",), "b": ("b",)})


def coarse_method(tree):
    torch.manual_seed(0)
    return CoarseCrossEntropy(tree, 6).double()


def test_the_published_scores(shared, cifar100):
    arrays, tree = (np.load(shared / f"oracles/extra-{kind}-cifar100.npz") for kind in ("hie", "tree"))
    oracle = {name: torch.from_numpy(values) for name, values in arrays.items()}
    fine, coarse = oracle["x"].softmax(dim=1), coarse_method(cifar100)
    # The oracle numbers nodes in its own way: a parent is known by the classes below it.
    parent_of_class = tree["node_parent"][tree["leaf_node"]].tolist()
    some_class = [coarse.parent.tolist().index(column) for column in range(len(oracle["coarse_node"]))]
    columns = [oracle["coarse_node"].tolist().index(parent_of_class[y]) for y in some_class]
    spread = coarse.scores(oracle["x_coarse"][:, columns]).softmax(dim=1)
    for parents, expected in (("network", "scores"), ("mean", "scores_self_marginalised")):
        method = HierarchicalEnsemble(cifar100, HierarchicalEnsemble.Params(parents=parents))
        torch.testing.assert_close(method.rescore(fine, spread), oracle[expected], rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("parents", ["network", "sum", "mean"])
def test_products_with_the_parents_on_a_ragged_tree(parents):
    torch.manual_seed(0)
    fine, coarse = (torch.randn(7, 8, dtype=torch.float64).mul(3).softmax(dim=1) for _ in range(2))
    expected = torch.empty(7, 8, dtype=torch.float64)
    for n in range(7):
        for group in SIBLINGS:
            members = [RAGGED.classes.index(name) for name in group]
            probabilities = coarse if parents == "network" else fine
            of_parent = math.fsum(probabilities[n, c].item() for c in members)
            for c in members:
                expected[n, c] = fine[n, c] * (of_parent / len(members) if parents == "mean" else of_parent)
        if parents != "mean":
            expected[n] /= expected[n].sum()
    rescored = HierarchicalEnsemble(RAGGED, HierarchicalEnsemble.Params(parents=parents)).rescore(fine, coarse)
    torch.testing.assert_close(rescored, expected, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize(("tree", "groups"), [(RAGGED, SIBLINGS), (FLAT, [["a", "b"]])], ids=["ragged", "flat"])
def test_the_coarse_network_spreads_a_parents_probability_over_its_classes(tree, groups):
    coarse = coarse_method(tree)
    outputs = coarse(torch.randn(5, 6, dtype=torch.float64))
    probabilities = coarse.scores(outputs).exp()  # they are a distribution already
    of_parents = outputs.softmax(dim=1)
    assert of_parents.shape[1] == len(groups)
    for group in groups:
        members = [tree.classes.index(name) for name in group]
        shares = of_parents[:, coarse.parent[members]] / len(members)
        torch.testing.assert_close(probabilities[:, members], shares, rtol=1e-12, atol=0)


def test_the_coarse_loss_is_the_cross_entropy_of_the_parents():
    coarse = coarse_method(RAGGED)
    outputs, targets = coarse(torch.randn(8, 6, dtype=torch.float64)), torch.arange(8)
    expected = -sum(outputs[i].log_softmax(0)[coarse.parent[y]] for i, y in enumerate(targets)) / 8
    torch.testing.assert_close(coarse.loss(outputs, targets)["cross_entropy"], expected, rtol=1e-12, atol=0)


def test_probabilities_that_vanish_stay_finite():
    fine = torch.zeros(1, 8, dtype=torch.float64)
    coarse = fine.clone()
    fine[0, RAGGED.classes.index("ash")] = 1.0
    coarse[0, RAGGED.classes.index("owl")] = 1.0
    assert HierarchicalEnsemble(RAGGED).rescore(fine, coarse).tolist() == [[0.0] * 8]


def test_chunks_of_two_bases(monkeypatch):
    monkeypatch.setattr("hierbench.training.posthoc.EXAMPLES_PER_CHUNK", 3)
    torch.manual_seed(1)
    scores = [torch.randn(8, 8) for _ in range(2)]
    posthoc, cpu = HierarchicalEnsemble(RAGGED), torch.device("cpu")
    chunks = list(rescored_chunks(posthoc, scores, torch.arange(8), cpu))
    assert [rows.start for rows, _, _ in chunks] == [0, 3, 6]
    at_once = posthoc.rescore(*(logits.double().softmax(dim=1) for logits in scores))
    torch.testing.assert_close(torch.cat([chunk for _, chunk, _ in chunks]), at_once, rtol=1e-12, atol=0)


def test_the_coarse_network_is_found_as_a_base_and_not_listed():
    assert find_method("hie").cls.base == ("ce", "_coarse_ce")
    assert find_method("_coarse_ce").name == "_coarse_ce" and is_installed("_coarse_ce")
    assert "_coarse_ce" not in method_names() and "hie" in method_names()
    assert not is_installed("__init__") and not is_installed("_nothing")
