"""The cost of a model: its parameters and its floating-point operations per image, counted without data."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from hierbench.api.method import Method
from hierbench.api.registry import Found
from hierbench.config.recipe import Recipe
from hierbench.config.sections import FeatureType, Model
from hierbench.hierarchy.tree import Hierarchy
from hierbench.models import build_backbone, build_classifier
from hierbench.models.backbones import Backbone
from hierbench.models.libraries.feature_map import on_meta
from hierbench.models.libraries.lookup import cached_backbone


@dataclass(frozen=True)
class Cost:
    """The cost of one method on one type of model."""

    parameters: int  # trainable ones
    flops: int | None  # of one image's forward pass, a multiply-add counted as two; None if they cannot be counted
    head: float | None = None  # seconds of head and loss in a training step, forward and backward; None if not timed
    job: float | None = None  # seconds of a job; None if not timed


def model_cost(found: Found, recipe: Recipe, hierarchy: Hierarchy, feature_type: FeatureType) -> Cost:
    """Build the model and count; the forward pass runs on meta tensors."""
    assert issubclass(found.cls, Method)
    params = found.params(recipe.params_of(found.name))
    backbone, maps, flops = _counted_backbone(recipe.model, recipe.model.input_size or recipe.expected.image_size)
    model = build_classifier(found.cls, hierarchy, feature_type, recipe.model, params, network=backbone)
    parameters = sum(p.numel() for p in model.parameters() if p.requires_grad)
    model.backbone = nn.Identity()
    _, of_head = (None, None) if maps is None else _counted(model, maps)
    return Cost(parameters, None if flops is None or of_head is None else flops + of_head)


@lru_cache(maxsize=1)  # the methods of a comparison share it
def _counted_backbone(model: Model, image_size: tuple[int, int]) -> tuple[Backbone, Tensor | None, int | None]:
    """Return the backbone, what it gives for an image, and its operations; None where they cannot be counted."""
    backbone = cached_backbone(model) if model.frozen else on_meta(lambda: build_backbone(model))
    shape = (1, backbone.num_channels) if model.frozen else (1, 3, *image_size)  # features are cached
    return backbone, *_counted(backbone, torch.empty(shape, device="meta"))


def _counted(network: nn.Module, inputs: Tensor) -> tuple[Any, int | None]:
    """Return the outputs and operations of a network on the meta device, None where they cannot be counted."""
    from torch.utils.flop_counter import FlopCounterMode

    try:
        network.to("meta").eval()
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            return network(inputs), counter.get_total_flops()
    except Exception:  # a library's network or a foreign method may read values, which meta tensors lack
        return None, None


def stand_in_tree(level_sizes: Sequence[int]) -> Hierarchy:
    """Return a tree with the given level sizes, coarsest first, for costs that depend only on those."""
    path_of: list[tuple[str, ...]] = [(f"0.{node}",) for node in range(level_sizes[0])]
    for level, (above, size) in enumerate(pairwise(level_sizes), 1):
        path_of = [(*path_of[node * above // size], f"{level}.{node}") for node in range(size)]
    return Hierarchy.from_paths({path[-1]: path for path in path_of})


def num_features(recipe: Recipe, hierarchy: Hierarchy, feature_type: FeatureType) -> int:
    """Return D, the width of the features that a method of this type gets."""
    if feature_type == "type-II":
        return hierarchy.num_classes
    return recipe.model.type_i_units or cached_backbone(recipe.model).num_channels
