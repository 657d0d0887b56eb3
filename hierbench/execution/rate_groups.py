"""The groups of parameters that a method may have with learning rates of their own, which a recipe may set."""

from torch.nn import Parameter

from hierbench.api.method import Method, trainable_groups
from hierbench.api.registry import LoadedMethod
from hierbench.config.rates import PREFIX, RATE_NAMES, check_group_names, own_rates
from hierbench.config.recipe import Recipe
from hierbench.config.sections import FEATURE_TYPES, FeatureType
from hierbench.execution.parameters import num_features, stand_in_tree
from hierbench.hierarchy.label_tree import Hierarchy
from hierbench.utils.errors import UserError

FEW_NODES = 50  # of a level


def has_own_groups(method: LoadedMethod) -> bool:
    """Whether a method may have parameters with learning rates of their own."""
    return issubclass(method.cls, Method) and method.cls.parameter_groups is not Method.parameter_groups


def group_names(
    recipe: Recipe, loaded: LoadedMethod, hierarchy: Hierarchy | None = None, feature_type: FeatureType | None = None
) -> list[str] | None:
    """Return the names of a method's own groups, [] for a method without any; the method is built to know them.

    Without a hierarchy it is built over one with the sizes that the recipe expects; None if these are not known yet,
    or not enough for the method.

    Raises:
        UserError: the method does not return groups.
    """
    if not has_own_groups(loaded):
        return []
    groups = _find_groups(recipe, loaded, hierarchy, feature_type)
    return None if groups is None else [name for name in groups if PREFIX + name not in RATE_NAMES]


def has_classifier(recipe: Recipe, loaded: LoadedMethod) -> bool:
    """Whether a method has trainable parameters with the classifier's rate, as far as that is known.

    It does not depend on the number of classes, on which the time of a frame does.
    """
    sizes = [min(size, FEW_NODES) for size in recipe.expected.level_sizes]
    groups = _find_groups(recipe, loaded, stand_in_tree(sizes) if sizes else None)
    return groups is None or bool(groups["classifier"])


def _find_groups(
    recipe: Recipe, loaded: LoadedMethod, hierarchy: Hierarchy | None = None, feature_type: FeatureType | None = None
) -> dict[str, list[Parameter]] | None:
    sizes = recipe.expected.level_sizes
    if hierarchy is None and not sizes:
        return None
    kind = next(name for name in FEATURE_TYPES if name in loaded.cls.types) if feature_type is None else feature_type
    assert issubclass(loaded.cls, Method)
    try:
        tree = hierarchy or stand_in_tree(sizes)
        method = loaded.cls(tree, num_features(recipe, tree, kind), loaded.params(recipe.params_for(loaded.name)))
    except Exception as error:  # foreign code, perhaps over a tree that it was not made for; its job reports it
        if isinstance(error, UserError):
            raise
        return None
    return trainable_groups(method)


def check_rates(
    recipe: Recipe, method: LoadedMethod, hierarchy: Hierarchy | None = None, feature_type: FeatureType | None = None
) -> None:
    """Raise a UserError if a recipe sets a learning rate of a group that a method does not have."""
    names = list(own_rates(recipe.methods.get(method.name, {})))
    if all(PREFIX + name in RATE_NAMES for name in names):
        return
    groups = group_names(recipe, method, hierarchy, feature_type)
    if groups is not None:
        check_group_names(names, groups, f"methods.{method.name}: ")
