"""The names under which a recipe may set learning rates of a method: parts of the model, and own groups."""

from hierbench.api.method import Method, groups_of
from hierbench.api.registry import Found
from hierbench.config.rates import PREFIX, RATE_NAMES, check_group_names, own_rates
from hierbench.config.recipe import Recipe
from hierbench.config.sections import FEATURE_TYPES, FeatureType
from hierbench.hierarchy.tree import Hierarchy
from hierbench.planning.cost import num_features, stand_in_tree
from hierbench.utils.errors import UserError


def has_own_groups(found: Found) -> bool:
    """Whether a method may have parameters with learning rates of their own."""
    return issubclass(found.cls, Method) and found.cls.parameter_groups is not Method.parameter_groups


def group_names(
    recipe: Recipe, found: Found, hierarchy: Hierarchy | None = None, feature_type: FeatureType | None = None
) -> list[str] | None:
    """Return the names of a method's own groups, [] for a method without any; the method is built to know them.

    Without a hierarchy it is built over one with the sizes that the recipe expects; None if these are not known yet,
    or not enough for the method.

    Raises:
        UserError: what the method returns are no groups.
    """
    if not has_own_groups(found):
        return []
    sizes = recipe.expected.level_sizes
    if hierarchy is None and not sizes:
        return None
    kind = next(name for name in FEATURE_TYPES if name in found.cls.types) if feature_type is None else feature_type
    assert issubclass(found.cls, Method)
    try:
        tree = hierarchy or stand_in_tree(sizes)
        params = found.params(recipe.params_of(found.name))
        method = found.cls(tree, num_features(recipe, tree, kind), params)
    except UserError:
        raise
    except Exception:  # foreign code, perhaps over a tree that it was not made for; its job reports it
        return None
    return [name for name in groups_of(method) if PREFIX + name not in RATE_NAMES]


def check_rates_of_class(recipe: Recipe, found: Found) -> None:
    """Raise a UserError for rates of own groups of a method without any; nothing is built."""
    if not has_own_groups(found):
        check_rates(recipe, found)


def check_rates(
    recipe: Recipe, found: Found, hierarchy: Hierarchy | None = None, feature_type: FeatureType | None = None
) -> None:
    """Raise a UserError if a recipe sets a learning rate of a group that a method does not have."""
    names = list(own_rates(recipe.methods.get(found.name, {})))
    if all(PREFIX + name in RATE_NAMES for name in names):
        return
    groups = group_names(recipe, found, hierarchy, feature_type)
    if groups is not None:
        try:
            check_group_names(names, groups)
        except UserError as error:
            raise UserError(f"methods.{found.name}: {error}") from None
