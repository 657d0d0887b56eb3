import pytest
import torch

from hierbench.api.registry import find_method
from hierbench.config.recipe import load_recipe
from hierbench.config.sections import Model
from hierbench.models import build_backbone
from hierbench.planning.cost import model_cost, stand_in_tree

METHODS = ("ce", "flamingo", "hafeature", "haframe")
DATASETS = ("fgvc", "cifar100", "inat19", "tieredimagenet-h")
RESNET50 = 25_557_032 - (2048 * 1000 + 1000)  # torchvision's count without its classifier


def wide_resnet_28_8():
    """By hand: stem, three groups of four blocks, the shortcuts, the norms."""
    convolutions, norms, channels = 3 * 16 * 9, 0, 16
    for width in (128, 256, 512):
        convolutions += channels * width * 9 + channels * width + 7 * width * width * 9
        norms += 2 * channels + 7 * 2 * width
        channels = width
    return convolutions + norms + 2 * 512


def linear(inputs, outputs):
    return inputs * outputs + outputs


def expected_parameters(recipe, kind, method):
    """The layers of docs/protocols.md, rows 11 to 14, 25 and 26, written out; only what is trained counts."""
    sizes = recipe.expected.level_sizes
    num_classes, num_levels = sizes[-1], len(sizes)
    backbone, channels = (wide_resnet_28_8(), 512) if recipe.dataset == "cifar100" else (RESNET50, 2048)
    if kind == "type-II":
        block = 2 * num_classes**2 + 2 * 2 * num_classes + 2 * num_classes
        features, transform = num_classes, channels * num_classes + 2 * num_classes + 2 * block
    elif recipe.model.type_i_units:
        features, transform = 600, 2 * channels + linear(channels, 600) + 2 * 600
    else:
        features, transform = channels, 0
    share = features // num_levels
    heads = {
        "ce": linear(features, num_classes),
        "flamingo": sum(linear(features - level * share, size) for level, size in enumerate(sizes)),
        "hafeature": sum(linear(features, size) for size in sizes),
        "haframe": 0,
    }
    return backbone + transform + heads[method]


@pytest.fixture
def uncounted(monkeypatch):
    """Counts no operations, which takes a second for a large network."""

    def refuse(**_):
        raise RuntimeError("not counted")

    monkeypatch.setattr("torch.utils.flop_counter.FlopCounterMode", refuse)


@pytest.mark.parametrize("protocol", ["paper", "authors"])
@pytest.mark.parametrize("name", DATASETS)
def test_parameter_counts(uncounted, name, protocol):
    recipe = load_recipe(name, protocol=protocol)
    tree = stand_in_tree(recipe.expected.level_sizes)
    for method in METHODS:
        found = find_method(method)
        for kind in found.cls.types:
            cost = model_cost(found, recipe, tree, kind)
            assert cost.parameters == expected_parameters(recipe, kind, method), (method, kind)


def test_flops_are_those_of_the_layers():
    """ResNet-50 at 224x224 is known for 4.09 billion multiply-adds; ours lacks its classifier."""
    recipe = load_recipe("fgvc")
    tree = stand_in_tree(recipe.expected.level_sizes)
    flops = model_cost(find_method("ce"), recipe, tree, "type-I").flops
    head = 2 * (2048 * 600 + 600 * 100)
    assert flops == pytest.approx(2 * 4.087e9, rel=0.002)
    backbone = build_backbone(Model(backbone="resnet50")).to("meta")
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        backbone(torch.empty(1, 3, 224, 224, device="meta"))
    assert flops == counter.get_total_flops() + head


def test_a_method_that_looks_at_values_costs_no_crash():
    found = find_method("ce")

    class Looking(found.cls):
        def forward(self, features):
            assert features.sum().item() > -1e9
            return super().forward(features)

    recipe = load_recipe("shapes")
    looking = type(found)(**{**vars(found), "cls": Looking})
    cost = model_cost(looking, recipe, stand_in_tree(recipe.expected.level_sizes), "type-I")
    assert cost.flops is None and cost.parameters > 10_000


@pytest.mark.parametrize("sizes", [(2, 4, 8, 20, 100), (3, 4, 9, 34, 57, 72, 1010), (1, 5), (7,)])
def test_the_stand_in_has_the_level_sizes(sizes):
    tree = stand_in_tree(sizes)
    assert tree.level_sizes == sizes and tree.height == len(sizes)
