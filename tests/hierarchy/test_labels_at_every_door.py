"""Labels that come with numbers: aligned at every door, or refused; a change of labels never changes a number."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import hierbench
from hierbench import Hierarchy, evaluate
from hierbench.answers import answer, conformal_sets, fit_temperature
from hierbench.metrics import hierdist_at_k_loss

TREE = Hierarchy.from_paths(
    {"carp": ("fish", "carp"), "eel": ("eel",), "owl": ("bird", "owl"), "swan": ("bird", "swan")}
)
NUMBERED = Hierarchy.from_paths({"10": ("a", "10"), "7": ("a", "7"), "12": ("b", "12"), "3": ("b", "3")})
RNG = np.random.default_rng(0)
TARGETS = RNG.integers(0, 4, 60)
SCORES = RNG.dirichlet(np.ones(4), 60) + 0.4 * np.eye(4)[TARGETS]
SCORES /= SCORES.sum(axis=1, keepdims=True)

DOORS = {
    "evaluate": lambda scores, targets, tree: evaluate(scores, targets, tree)["hierdist@1"],
    "hierdist": lambda scores, targets, tree: hierdist_at_k_loss(by_name(targets, tree), scores, tree, k=2),
    "score": lambda scores, targets, tree: scored(scores, by_name(targets, tree), tree)["hierdist@1"],
    "answer": lambda scores, targets, tree: answer("majority", scores, tree).tolist(),
    "sets": lambda scores, targets, tree: conformal_sets(scores, targets, scores, tree, 0.1).tolist(),
}


def scored(scores, targets, tree):
    return hierbench.score(scores, targets, tree, resamples=0)


def by_name(targets, tree):
    """Numbers are names where the classes are numbers."""
    return np.array([10, 7, 12, 3])[targets] if tree is NUMBERED else targets


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("tree", [TREE, NUMBERED], ids=["names", "numbers"])
@given(order=st.permutations(range(4)), kind=st.sampled_from(["text", "bytes", "category", "number", "float"]))
@settings(max_examples=12, deadline=None)
def test_permuted_and_retyped_columns_change_no_number(door, tree, order, kind):
    order = list(order)
    names = [tree.classes[i] for i in order]
    if kind in ("number", "float") and tree is TREE:
        names = order  # places in the tree's order
    elif kind in ("number", "float"):
        names = [(int if kind == "number" else float)(name) for name in names]
    labels = {
        "text": names,
        "bytes": [str(name).encode() for name in names],
        "category": pd.CategoricalIndex(names),
        "number": pd.Index(names),
        "float": [float(name) for name in names] if kind == "float" else names,
    }[kind]
    frame = pd.DataFrame(SCORES[:, order], columns=labels)
    expected = DOORS[door](pd.DataFrame(SCORES, columns=list(tree.classes)), TARGETS, tree)
    assert DOORS[door](frame, TARGETS, tree) == expected


ODD = [
    (
        "tuples",
        pd.DataFrame(SCORES, columns=pd.MultiIndex.from_tuples([("a", i) for i in range(4)])),
        "name no classes",
    ),
    ("dates", pd.DataFrame(SCORES, columns=pd.date_range("2026-01-01", periods=4)), "name no classes"),
    ("other numbers", pd.DataFrame(SCORES, columns=[1, 2, 3, 4]), "no classes of the tree"),
    ("no class", pd.DataFrame(SCORES, columns=["owl", "swan", "carp", "pike"]), "'pike' is not a class"),
    ("sparse", scipy.sparse.csr_matrix(SCORES), "toarray"),
]


@pytest.mark.parametrize(("scores", "problem"), [case[1:] for case in ODD], ids=[case[0] for case in ODD])
@pytest.mark.parametrize("door", ["evaluate", "hierdist", "score", "answer", "sets"])
def test_other_labels_are_refused(door, scores, problem):
    with pytest.raises(ValueError, match=problem):
        DOORS[door](scores, TARGETS, TREE)


@pytest.mark.parametrize("door", ["evaluate", "hierdist", "score"])
def test_what_is_masked_is_never_ranked_first(door):
    mask = np.zeros_like(SCORES, dtype=bool)
    mask[np.arange(60), SCORES.argmax(axis=1)] = True
    masked = np.ma.array(SCORES, mask=mask)
    assert DOORS[door](masked, TARGETS, TREE) == DOORS[door](np.where(mask, -np.inf, SCORES), TARGETS, TREE)
    with pytest.raises(ValueError, match="masked"):
        hierdist_at_k_loss(np.ma.array(TARGETS, mask=TARGETS == 0), SCORES, TREE, k=1)


@pytest.mark.parametrize("door", ["evaluate", "hierdist", "score"])
def test_rows_are_aligned_by_a_common_index(door):
    ids = [f"photo {i}" for i in range(60)]
    order = RNG.permutation(60)
    scores = pd.DataFrame(SCORES, index=ids, columns=list(TREE.classes))
    targets = pd.Series(TARGETS, index=ids).iloc[order]
    assert DOORS[door](scores, targets, TREE) == DOORS[door](SCORES, TARGETS, TREE)
    with pytest.raises(ValueError, match="labelled otherwise"):
        DOORS[door](scores, targets.rename(index={"photo 3": "photo x"}), TREE)
    shuffled = pd.DataFrame(SCORES, columns=list(TREE.classes)).iloc[order]
    with pytest.raises(ValueError, match="numbered"):  # in another order than the targets, which have no index
        DOORS[door](shuffled, TARGETS, TREE)
    with pytest.raises(ValueError, match="masked"):
        DOORS[door](SCORES, np.ma.array(TARGETS, mask=TARGETS == 0), TREE)


def test_a_temperature_has_no_tree_and_refuses_names():
    logits = np.log(SCORES)
    expected = fit_temperature(torch.from_numpy(logits), torch.from_numpy(TARGETS))
    assert fit_temperature(pd.DataFrame(logits), TARGETS) == expected
    with pytest.raises(ValueError, match="columns have names"):
        fit_temperature(pd.DataFrame(logits, columns=list(TREE.classes)), TARGETS)
