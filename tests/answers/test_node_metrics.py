"""Metrics of nodes and Valmadre's curve: the worked examples, and loops over nodes."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hierbench.answers import answer, node_metrics
from hierbench.answers.node_metrics import NODE_METRICS, curve_of, curve_steps
from tests.answers.reference import PathTree
from tests.answers.test_rules import EXAMPLES, NODES_OF_T, R, T, cases

# Of a node, for the target a1: hP, hR, hF without the root; with it; edges, height of the LCA, correct, coverage.
WORKED = {
    "a1": ((1, 1, 1), (1, 1, 1), 0, 0, 1, 1),
    "a2": ((0.5, 0.5, 0.5), (2 / 3, 2 / 3, 2 / 3), 2, 1, 0, 1),
    "b1": ((0, 0, 0), (1 / 3, 1 / 3, 1 / 3), 4, 2, 0, 1),
    "A": ((1, 0.5, 2 / 3), (1, 2 / 3, 0.8), 1, 1, 1, 0.5),
    "B": ((0, 0, 0), (0.5, 1 / 3, 0.4), 3, 2, 0, 0.5),
    "r": ((1, 0, 0), (1, 1 / 3, 0.5), 2, 2, 1, 0),
}


@pytest.mark.parametrize("node", WORKED)
def test_worked_examples(node):
    without, with_root, edges, height, correct, coverage = WORKED[node]
    arguments = [NODES_OF_T[node]], [NODES_OF_T["a1"]], T
    values = node_metrics(*arguments)
    assert [values[name] for name in ("hp", "hr", "hf")] == pytest.approx(without)
    counted = node_metrics(*arguments, root=True)
    assert [counted[name] for name in ("hp", "hr", "hf")] == pytest.approx(with_root)
    others = [values[name] for name in ("edges", "lca_distance", "correct", "coverage", "information", "exact")]
    assert others == pytest.approx([edges, height, correct, coverage, 2 * coverage, float(node == "a1")])
    assert values["scaled_accuracy"] == pytest.approx(correct * coverage)


@given(cases(), st.integers(0, 2**31), st.sampled_from([0.5, 1.0, 2.0]), st.booleans())
def test_equal_to_loops_over_pairs_of_nodes(case, seed, beta, root):
    """Targets are any nodes; the macro mean is of F, not F of the means."""
    tree, _ = case
    paths = PathTree(tree)
    nodes, targets = np.random.default_rng(seed).integers(len(paths.nodes), size=(2, 20))
    rows = []
    for n, t in zip(nodes.tolist(), targets.tolist(), strict=True):
        lca = paths.lca(n, t)
        shared, predicted, true = (paths.depth[x] + root for x in (lca, n, t))
        precision = shared / predicted if predicted else 1.0
        recall = shared / true if true else 1.0
        below = beta**2 * precision + recall
        hf = (1 + beta**2) * precision * recall / below if below else 0.0
        share = paths.information[n] / math.log2(tree.num_classes)
        correct = float(paths.is_above(n, t))
        height = paths.height[lca] - paths.height[t]
        information = paths.information[n]
        row = correct, n == t, precision, recall, hf, information, correct * share, paths.edges(n, t), height, share
        rows.append(row)
    values = node_metrics(nodes, targets, tree, beta=beta, root=root)
    assert list(values) == list(NODE_METRICS)
    assert list(values.values()) == pytest.approx(np.mean(np.array(rows, dtype=float), axis=0), abs=1e-12)


def test_valmadres_curve():
    targets = torch.tensor([NODES_OF_T[name] for name in ("a1", "a1", "a2")])
    curve = curve_of(curve_steps(torch.tensor(EXAMPLES[:3], dtype=torch.float64), targets, T))
    assert curve.threshold.tolist() == pytest.approx([math.inf, 0.8, 0.6, 0.55, 0.5, 0.4])
    assert curve.correct.tolist() == pytest.approx([1, 1, 2 / 3, 1 / 3, 1 / 3, 2 / 3])
    assert curve.recall.tolist() == pytest.approx([0, 1 / 6, 1 / 6, 1 / 6, 1 / 3, 5 / 6])
    assert curve.precision.tolist() == pytest.approx([1, 1, 5 / 6, 0.5, 0.5, 5 / 6])
    areas = curve.area(), curve.area("precision"), curve.area("correct", "exact")
    assert areas == pytest.approx((0.6111, 0.7222, 0.4444), abs=5e-5)


@given(cases(), st.integers(0, 2**31))
def test_the_curve_is_what_thresholds_give(case, seed):
    tree, probabilities = case
    targets = np.random.default_rng(seed).integers(len(PathTree(tree).nodes), size=len(probabilities))
    curve = curve_of(curve_steps(torch.from_numpy(probabilities), torch.from_numpy(targets), tree))
    for place, threshold in enumerate(curve.threshold.tolist()[1:], start=1):
        nodes = answer("confidence_threshold", probabilities, tree, threshold=threshold)
        values = node_metrics(nodes, targets, tree)
        assert (curve.correct[place], curve.exact[place]) == pytest.approx((values["correct"], values["exact"]))


@pytest.mark.parametrize(
    ("nodes", "targets", "message"),
    [
        ([7], [0], "nodes must be nodes, from 0 to 6"),
        ([0], [-1], "targets must be nodes"),
        ([0, 1], [0], r"\[N\] both"),
        ([], [], "no examples|integers"),
        ([0.5], [0], "nodes must be integers"),
    ],
)
def test_mistakes_are_named(nodes, targets, message):
    with pytest.raises(ValueError, match=message):
        node_metrics(nodes, targets, R)
