"""What is known of built-in datasets without their data: sizes, and digests of the trees and of the test targets."""

import tomllib
from functools import cache, lru_cache
from importlib import resources
from typing import Any

from hierbench.config.recipe import recipe_names
from hierbench.config.sections import Expected
from hierbench.leaderboard.settings import recipe_of


@lru_cache(maxsize=32)
def expected_sizes(dataset: str) -> Expected | None:
    """Return the sizes of a built-in dataset, None for any other."""
    recipe = recipe_of(dataset, "paper") if dataset in recipe_names() else None
    return None if recipe is None else recipe.expected


@cache
def shipped_targets() -> dict[tuple[str, str], tuple[int, str]]:
    """Return {(dataset, order in which examples are dropped or ""): (examples, SHA-256 of the targets)}."""
    splits = _read("test-splits")["split"]
    return {(one["dataset"], one["drop_order"]): (one["examples"], one["sha256"]) for one in splits}


@cache
def shipped_trees() -> dict[tuple[str, str], str]:
    """Return {(dataset, distance): SHA-256 of its tree}."""
    return {(name, distance): digest for distance, of in _read("trees").items() for name, digest in of.items()}


def _read(name: str) -> dict[str, Any]:
    file = resources.files("hierbench.benchmarks").joinpath(f"targets/{name}.toml")
    return tomllib.loads(file.read_text(encoding="utf-8"))
