"""Speed as a ratio to the readable references, both timed in turn in one process: `pytest -m speed -s`."""

import time
from functools import partial

import numpy as np
import pytest
import torch

from hierbench import Hierarchy, evaluate
from hierbench.methods.crm import CRM
from hierbench.methods.hafeature import HAFeature
from hierbench.methods.haframe import HAFrame, hierarchy_aware_frame
from hierbench.metrics import Tally
from hierbench.training.posthoc import rescored_chunks
from tests.tools.bench import head_pass

pytestmark = pytest.mark.speed


def median_seconds(function, repeats):
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - start)
    return float(np.median(seconds))


def ratio(name, fast, reference, at_least, rounds=3, repeats=5):
    """Print and check the median over rounds of reference / fast."""
    fast()  # warm up
    ratios = [reference_seconds(reference) / median_seconds(fast, repeats) for _ in range(rounds)]
    print(f"\n{name}: {np.median(ratios):.0f}x (rounds: {', '.join(f'{r:.0f}' for r in ratios)}; asked: {at_least}x)")
    assert np.median(ratios) >= at_least


def reference_seconds(reference):
    """Time the reference; one that only ran a part returns the factor to the whole."""
    start = time.perf_counter()
    factor = reference()
    return (time.perf_counter() - start) * (factor if isinstance(factor, float) else 1.0)


@pytest.fixture(scope="module")
def inat(shared):
    return Hierarchy.read(shared / "data/making-better-mistakes/inaturalist19_isa.txt")


@pytest.mark.parametrize(("num", "part", "repeats"), [(2000, 100, 5), (40_000, 50, 1)])
def test_metrics_and_crm(reference, inat, num, part, repeats):
    """Metrics, softmax, CRM and its metrics of N x 1010 scores; asked for 40,000: 3 s on two cores."""
    torch.manual_seed(0)
    scores, targets = torch.empty(num, 1010), torch.randint(1010, (num,))
    for chunk in scores.split(1000):
        chunk.normal_(std=3.0)
    crm, cpu = CRM(inat), torch.device("cpu")

    def fast():
        tally = Tally(inat)
        for _, chunk, chunk_targets in rescored_chunks(crm, scores, targets, cpu):
            tally.add(chunk, chunk_targets)
        return evaluate(scores, targets, inat), tally.metrics()

    def slow():  # on a part of the examples: the loop's cost is per example
        reference.evaluate(scores[:part], targets[:part], inat.distances)
        rescored = reference.crm(scores[:part].double().softmax(1), inat.distances)
        reference.evaluate(rescored, targets[:part], inat.distances)
        return num / part

    ratio(f"metrics and CRM, N={num}, K=1010", fast, slow, 75, repeats=repeats)
    print(f"seconds: {median_seconds(fast, 5):.2f} on {torch.get_num_threads()} threads")


def test_haframe_loss(reference, inat):
    torch.manual_seed(0)
    method, part = HAFrame(inat, 1010), 4
    features, targets = torch.randn(256, 1010), torch.randint(1010, (256,))

    def slow():
        x = features[:part].clone().requires_grad_()
        reference.haframe_loss(x, targets[:part], method.frame, 0.4).backward()
        return 256 / part

    ratio("HAFrame loss, forward and backward, B=256, K=1010", head_pass(method, targets), slow, 30)


def test_hafeature(reference, shared):
    tiered = Hierarchy.read(shared / "data/making-better-mistakes/tiered_imagenet_isa.txt", distance="depth")
    torch.manual_seed(0)
    method = HAFeature(tiered, 600)
    features, targets = torch.randn(256, 600), torch.randint(608, (256,))
    fast = head_pass(method, targets)

    def slow(part):
        x = features[:part].clone().requires_grad_()
        sizes = list(tiered.level_sizes)
        weights = method.heads.weight.split(sizes)
        terms = reference.hafeature_terms(
            x, targets[:part], weights, method.heads.bias.split(sizes), tiered, range(part)
        )
        sum(terms.values()).backward()

    def slow_epoch():  # two sizes give the cost per example and the cost that no example adds to
        small, large = (median_seconds(partial(slow, part), 1) for part in (3, 9))
        return small + (256 - 3) * (large - small) / 6

    fast()
    measured = slow_epoch() / median_seconds(fast, 5)
    print(f"\nHAFeature head and loss, 12 levels, B=256: {measured:.0f}x (asked: 10x)")
    assert measured >= 10


@pytest.mark.parametrize(("dtype", "at_least"), [(np.float32, 200), (np.float64, 100)])
def test_frame(reference, inat, dtype, at_least):
    """Frame, S and s_min against the search in float64; HAFrame builds its frame in float32, and no S."""

    def slow():
        reference.frame_by_search(inat.distances, 3.0, np.random.default_rng(0))

    def fast():
        hierarchy_aware_frame(inat.distances, 3.0, dtype=dtype)

    ratio(f"frame with its s_min, K=1010, {dtype.__name__}", fast, slow, at_least)
