"""What is known of the test splits of built-in datasets without their data."""

from functools import lru_cache

from hierbench.config.recipe import recipe_names
from hierbench.config.sections import Expected
from hierbench.leaderboard.settings import recipe_of


@lru_cache(maxsize=32)
def expected_sizes(dataset: str) -> Expected | None:
    """Return the sizes of a built-in dataset, None for any other."""
    recipe = recipe_of(dataset, "paper") if dataset in recipe_names() else None
    return None if recipe is None else recipe.expected
