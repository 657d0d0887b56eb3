"""How many parameters a model trains, counted without data or weights."""

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

from hierbench.api.method import Method
from hierbench.api.registry import LoadedMethod
from hierbench.config.recipe import Recipe
from hierbench.config.sections import FeatureType, Model
from hierbench.hierarchy.label_tree import Hierarchy
from hierbench.models import build_backbone, build_classifier
from hierbench.models.backbones import Backbone
from hierbench.models.libraries.feature_map import on_meta
from hierbench.models.libraries.lookup import cached_backbone


def count_parameters(method: LoadedMethod, recipe: Recipe, hierarchy: Hierarchy, feature_type: FeatureType) -> int:
    """Return the number of trainable parameters of a method's model on a type."""
    assert issubclass(method.cls, Method)
    params = method.params(recipe.params_for(method.name))
    model = build_classifier(method.cls, hierarchy, feature_type, recipe.model, params, network=_backbone(recipe.model))
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


@lru_cache(maxsize=1)  # the methods of a comparison share it
def _backbone(model: Model) -> Backbone:
    return cached_backbone(model) if model.frozen else on_meta(lambda: build_backbone(model))


def stand_in_tree(level_sizes: Sequence[int]) -> Hierarchy:
    """Return a tree with the given level sizes, coarsest first, for numbers that depend only on those."""
    path_of: list[tuple[str, ...]] = [(f"0.{node}",) for node in range(level_sizes[0])]
    for level, (above, size) in enumerate(pairwise(level_sizes), 1):
        path_of = [(*path_of[node * above // size], f"{level}.{node}") for node in range(size)]
    return Hierarchy.from_paths({path[-1]: path for path in path_of})


def num_features(recipe: Recipe, hierarchy: Hierarchy, feature_type: FeatureType) -> int:
    """Return D, the width of the features that a method of this type gets."""
    if feature_type == "type-II":
        return hierarchy.num_classes
    units = 0 if feature_type == "pooled" else recipe.model.type_i_units
    return units or cached_backbone(recipe.model).num_channels
