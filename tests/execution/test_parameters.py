import pytest

from hierbench.api.registry import find_method
from hierbench.config.recipe import load_recipe
from hierbench.execution.parameters import count_parameters, stand_in_tree

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
    elif recipe.model.type_i_units and kind != "pooled":
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


@pytest.mark.parametrize("protocol", ["paper", "authors"])
@pytest.mark.parametrize("name", DATASETS)
def test_parameter_counts(name, protocol):
    recipe = load_recipe(name, protocol=protocol)
    tree = stand_in_tree(recipe.expected.level_sizes)
    for method in METHODS:
        loaded = find_method(method)
        for kind in loaded.cls.types:
            counted = count_parameters(loaded, recipe, tree, kind)
            assert counted == expected_parameters(recipe, kind, method), (method, kind)


@pytest.mark.parametrize("sizes", [(2, 4, 8, 20, 100), (3, 4, 9, 34, 57, 72, 1010), (1, 5), (7,)])
def test_the_stand_in_has_the_level_sizes(sizes):
    tree = stand_in_tree(sizes)
    assert tree.level_sizes == sizes and tree.height == len(sizes)
