"""Every trained method on trees of 1,010 and 10,000 classes, with memory linear in nodes where its formula is.

Shapes: B batch, D features, K classes, N nodes.
"""

import tracemalloc
from math import ceil

import pytest
import torch
from torch.autograd.profiler import profile

from hierbench.execution.parameters import stand_in_tree
from tests.tools.bench import INAT, trained_methods

BATCH, NUM_FEATURES = 4, 64
SQUARE = {"haframe", "haframe_frame", "haframe_paper", "barz_denzler"}  # their frame is [K, K]
METHODS = [pytest.param(cls, id=cls.name) for cls in trained_methods()]
SLACK = 1.3  # above the ratio of the numbers of nodes; with a square matrix it would be that ratio again


def nodes_of(tree):
    return 1 + sum(tree.level_sizes)  # no leaf is shallow


def step(cls, tree):
    """Build the method, do a step and score a batch; return the bytes that this took, and those that it keeps.

    The first are all that operations allocated, whether freed since or not, and the peak of NumPy's arrays.
    """
    torch.manual_seed(0)
    num_features = NUM_FEATURES if "type-I" in cls.types else tree.num_classes
    features = torch.randn(BATCH, num_features, requires_grad=True)
    targets = torch.arange(BATCH) * (tree.num_classes // BATCH)
    tracemalloc.start()  # counts NumPy's arrays
    try:
        with profile(profile_memory=True) as record:
            method = cls(tree, num_features, cls.Params())
            outputs = method(features)
            loss = torch.stack(list(method.loss(outputs, targets).values())).sum()
            loss.backward()
            scores = method.scores(outputs)
            find_levels = getattr(method, "level_scores", None)
            levels = find_levels(outputs) if find_levels else None
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert loss.isfinite() and features.grad.isfinite().all() and features.grad.any()
    assert scores.shape == (BATCH, tree.num_classes) and scores.isfinite().all()
    if levels is not None:
        assert [level.shape[1] for level in levels] == list(tree.level_sizes)
    kept = [tensor for part in (method.parameters(), method.buffers()) for tensor in part]
    allocated = sum(max(0, event.self_cpu_memory_usage) for event in record.function_events)
    return allocated + peak, sum(tensor.nbytes for tensor in kept)


def require_linear(cls, small, large):
    for less, more in zip(step(cls, small), step(cls, large), strict=True):
        print(f"\n{cls.name}, {nodes_of(small)} and {nodes_of(large)} nodes: {less >> 10} and {more >> 10} KiB")
        assert more / less <= SLACK * nodes_of(large) / nodes_of(small)


@pytest.fixture(scope="module", params=[(253, 1010), pytest.param((1010, 10_000), marks=pytest.mark.speed)])
def trees(request):
    """Two trees with the seven levels of iNaturalist 2019, scaled to numbers of classes."""
    small, large = (stand_in_tree([ceil(size * number / INAT[-1]) for size in INAT]) for number in request.param)
    step(trained_methods()[0], small)  # what is imported at the first use is not a method's memory
    return small, large


@pytest.mark.parametrize("cls", METHODS)
def test_memory_grows_as_the_nodes(cls, trees):
    if cls.name in SQUARE:
        step(cls, trees[1])
    else:
        require_linear(cls, *trees)
