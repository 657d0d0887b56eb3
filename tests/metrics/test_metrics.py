import json
import math
import socket
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hierbench import Hierarchy, evaluate
from hierbench.metrics import Evidence, Tally, compute_metrics, find_metric, mistakes_by_distance, top_classes
from hierbench.metrics.classes import HierarchicalMetric
from hierbench.metrics.ranked_classes import ranked_with_ties

PATHS = ["pta", "ptb", "pc", "qd", "qe"]
TREE = Hierarchy.from_paths({path[-1]: tuple(path) for path in PATHS})


def same(ours, expected):
    return ours.keys() == expected.keys() and all(
        ours[key] == pytest.approx(expected[key], rel=1e-12, nan_ok=True) for key in ours
    )


@st.composite
def batches(draw):
    num = draw(st.integers(1, 12))
    row = st.lists(st.integers(0, 3), min_size=5, max_size=5)
    scores = draw(st.lists(row, min_size=num, max_size=num))
    return torch.tensor(scores).float(), torch.tensor(draw(st.lists(st.integers(0, 4), min_size=num, max_size=num)))


@given(batches())
def test_equal_to_the_reference_with_many_ties(reference, case):
    scores, targets = case
    for ks in [(1, 5, 20), (1, 2, 3), (4,)]:
        ours = evaluate(scores, targets, TREE, ks)
        expected = reference.evaluate(scores, targets, TREE.distances, ks)
        assert same(ours, expected)


@given(st.integers(0, 2**32 - 1), st.integers(1, 40), st.sampled_from([1, 2, 7, 39, 40]))
def test_top_classes_is_a_stable_sort(seed, num_values, k):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randint(0, num_values, (16, 40), generator=generator).double()
    expected = scores.sort(dim=1, descending=True, stable=True).indices[:, :k]
    assert torch.equal(top_classes(scores, k), expected)


@pytest.mark.parametrize("num_values", [1, 3, 1000])
def test_the_way_of_accelerators_is_a_stable_sort(num_values):
    """There every row is ranked as if it had ties, because to ask which rows have some would wait for the device."""
    scores = torch.randint(0, num_values, (64, 40), generator=torch.Generator().manual_seed(0)).double()
    scores[::3, ::2] = -math.inf
    for k in (1, 5, 39):
        expected = scores.sort(dim=1, descending=True, stable=True).indices[:, :k]
        assert torch.equal(ranked_with_ties(scores, scores.topk(k).values[:, -1:], k), expected)


def test_a_tally_of_batches_is_that_of_the_whole():
    generator = torch.Generator().manual_seed(0)
    scores = torch.randint(0, 4, (3000, 5), generator=generator).float()
    targets = torch.randint(0, 5, (3000,), generator=generator)
    tally = Tally(TREE)
    for start, stop in [(0, 0), (0, 1), (1, 1500), (1500, 3000)]:
        tally.add(scores[start:stop], targets[start:stop])
    assert tally.metrics() == evaluate(scores, targets, TREE)
    assert tally.mistakes_by_distance() == mistakes_by_distance(scores, targets, TREE)
    assert sum(tally.mistakes_by_distance()) == (top_classes(scores, 1)[:, 0] != targets).sum()


def test_infinite_scores_have_a_rank():
    scores = torch.tensor([[-math.inf, 1.0, math.inf, -math.inf]])
    assert top_classes(scores, 3).tolist() == [[2, 1, 0]]


def test_by_hand():
    scores = torch.tensor([[5.0, 4, 3, 2, 1], [5, 4, 3, 2, 1], [5, 4, 3, 2, 1], [0, 0, 0, 0, 0]])
    targets = torch.tensor([0, 1, 3, 4])
    metrics = evaluate(scores, targets, TREE, (1, 2))
    # distances of the first class: 0, 1, 3, 3; of the second: 1, 0, 3, 3
    assert metrics == {
        "top1": 25.0,
        "mistake_severity": pytest.approx(7 / 3),
        "hierdist@1": 7 / 4,
        "hierdist@2": 14 / 8,
    }
    assert mistakes_by_distance(scores, targets, TREE) == [0, 1, 0, 2]


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32])
def test_targets_of_any_integer_type(dtype):
    assert evaluate(torch.eye(5), torch.arange(5).to(dtype), TREE)["top1"] == 100.0


@pytest.mark.parametrize(("key", "rescore"), [("base", False), ("crm", True)])
def test_equal_to_the_oracle(shared, cifar100, key, rescore):
    from hierbench.methods.crm import CRM

    oracle = np.load(shared / "oracles/metrics-cifar100.npz")
    scores = torch.from_numpy(oracle["logits"])
    if rescore:
        scores = CRM(cifar100).rescore(scores.softmax(1))
        assert (top_classes(scores, 20).numpy() == oracle["crm_top20"]).all()
    metrics = evaluate(scores, oracle["targets"], cifar100)
    assert list(metrics.values()) == pytest.approx(oracle[key].tolist(), rel=1e-12)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.integers(0, 1000))
def test_the_class_does_not_depend_on_batching(sizes, seed):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randint(0, 4, (sum(sizes), 5), generator=generator).float()
    targets = torch.randint(0, 5, (sum(sizes),), generator=generator)
    expected = evaluate(scores, targets, TREE)
    for name, value in expected.items():
        metric = HierarchicalMetric(TREE, name)
        for part, part_targets in zip(scores.split(sizes), targets.split(sizes), strict=True):
            metric.update(part, part_targets)
        value /= 100.0 if name == "top1" else 1.0
        assert metric.compute().item() == pytest.approx(value, rel=0, abs=0, nan_ok=True)


def test_the_class_under_ddp(cli, tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    generator = torch.Generator().manual_seed(0)
    scores, targets = torch.randn(17, 5, generator=generator), torch.randint(0, 5, (17,), generator=generator)
    torch.save({"paths": PATHS, "scores": scores, "targets": targets}, tmp_path / "case.pt")
    script = Path(__file__).parents[1] / "support/ddp_rank.py"
    done = cli.start(tmp_path, port, tmp_path / "case.pt", python=(script,)).finish().ok()
    results = [json.loads(line) for line in done.out.splitlines()]
    expected = evaluate(scores, targets, TREE)
    expected["top1"] /= 100.0
    assert [{name: result[name] for name in expected} for result in results] == [expected] * 2
    evidence = Evidence(scores, targets, TREE, scores.double().softmax(1))
    others = compute_metrics(sorted(results[0].keys() - expected.keys()), evidence)
    others = {name: value / (100.0 if find_metric(name).unit == "%" else 1.0) for name, value in others.items()}
    assert len(others) == 3
    for result in results:
        assert {name: result[name] for name in others} == pytest.approx(others, rel=1e-12)
