"""The cost of every method's head and loss, measured in turn with what it is compared to: `pytest -m speed -s`."""

import pytest
import torch

from hierbench.api.method import Method
from hierbench.api.registry import find_all
from hierbench.config.sections import Model
from hierbench.experiments.bench import INAT
from hierbench.methods.haframe import HAFrame
from hierbench.models import build_backbone
from hierbench.planning.cost import stand_in_tree
from hierbench.planning.timing import in_turn, median_ratio

pytestmark = pytest.mark.speed

METHODS = {found.name: found.cls for found in find_all() if issubclass(found.cls, Method)}


def step(cls, tree, batch, num_features):
    """Forward, loss and backward pass of a method on features."""
    torch.manual_seed(0)
    method = cls(tree, num_features)
    features = torch.randn(batch, num_features, requires_grad=True)
    targets = torch.arange(batch) * 3 % tree.num_classes

    def run():
        features.grad = None
        method.zero_grad()
        sum(method.loss(method(features), targets).values()).backward()

    return run


@pytest.mark.parametrize("name", METHODS)
def test_at_most_six_times_haframe(name):
    """B = 256, the tree of iNaturalist 2019."""
    tree = stand_in_tree(INAT)
    ours, haframe = in_turn([step(cls, tree, 256, 1010) for cls in (METHODS[name], HAFrame)], 9, "cpu")
    ratio = median_ratio(ours, haframe)
    print(f"\n{name}: {ratio:.1f}x HAFrame's forward, loss and backward at B=256, K=1010 (asked: at most 6x)")
    assert ratio <= 6.0


@pytest.mark.parametrize("name", METHODS)
def test_at_most_fifteen_percent_of_a_small_network(name, cifar100):
    """B = 64, K = 100, against forward and backward pass of a bare WRN-28-2."""
    backbone = build_backbone(Model(backbone="wrn28-2")).to(memory_format=torch.channels_last)
    images = torch.randn(64, 3, 32, 32)
    ours, bare = in_turn([step(METHODS[name], cifar100, 64, 100), lambda: backbone(images).mean().backward()], 3, "cpu")
    share = 100.0 * median_ratio(ours, bare)
    print(f"\n{name}: head and loss are {share:.1f} % of WRN-28-2 at B=64, K=100 (asked: at most 15 %)")
    assert share <= 15.0
