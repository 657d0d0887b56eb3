"""What a method adds to a training step: its head and loss, timed forward and backward on random features.

Shapes: B batch, D features.
"""

import statistics
from collections.abc import Callable, Sequence

import torch

from hierbench.api.method import Method
from hierbench.api.registry import Found
from hierbench.config.recipe import Recipe
from hierbench.config.sections import FeatureType
from hierbench.hierarchy.tree import Hierarchy
from hierbench.models.libraries.lookup import cached_backbone
from hierbench.planning.timing import in_turn
from hierbench.utils.errors import is_interrupt

ROUNDS = 5
LIMIT = 2.0  # seconds after which no further round begins


def num_features(recipe: Recipe, hierarchy: Hierarchy, feature_type: FeatureType) -> int:
    """Return D, the width of the features that a method of this type gets."""
    if feature_type == "type-II":
        return hierarchy.num_classes
    return recipe.model.type_i_units or cached_backbone(recipe.model).num_channels


def head_seconds(
    methods: Sequence[Found], recipe: Recipe, hierarchy: Hierarchy, feature_type: FeatureType, device: str, batch: int
) -> dict[str, float | None]:
    """Return by method the seconds of one step's head and loss on a batch [B, D]; None where it cannot be run alone."""
    steps: dict[str, Callable[[], object]] = {}
    state = torch.get_rng_state()
    try:
        for found in methods:
            try:
                step = _step(found, recipe, hierarchy, feature_type, device, batch)
                step()
            except BaseException as error:  # a foreign method may raise anything; its job reports it
                if is_interrupt(error):
                    raise
            else:
                steps[found.name] = step
        rounds = in_turn(list(steps.values()), ROUNDS, device, LIMIT) if steps else []
        seconds = dict(zip(steps, map(statistics.median, rounds), strict=True))
        return {found.name: seconds.get(found.name) for found in methods}
    finally:
        torch.set_rng_state(state)


def _step(
    found: Found, recipe: Recipe, hierarchy: Hierarchy, feature_type: FeatureType, device: str, batch: int
) -> Callable[[], object]:
    """Return a function that does forward, loss and backward of a method's head."""
    width = num_features(recipe, hierarchy, feature_type)
    assert issubclass(found.cls, Method)
    method = found.cls(hierarchy, width, found.params(recipe.params_of(found.name))).to(device).train()
    features = torch.randn(batch, width, device=device, requires_grad=True)
    targets = torch.arange(batch, device=device) % hierarchy.num_classes

    def step() -> None:
        method.zero_grad()
        torch.stack(list(method.loss(method(features), targets).values())).sum().backward()

    return step
