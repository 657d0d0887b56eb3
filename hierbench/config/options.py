"""The options of a command that trains, as typed. Nothing heavy is imported here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from hierbench.config.recipe import FEATURE_TYPES, FeatureType, Protocol, Recipe
from hierbench.utils.errors import UserError, unknown_name


@dataclass(frozen=True)
class Options:
    """The command's options, as typed."""

    methods: str
    dataset: str
    types: str
    runs: Path
    data_dir: Path
    seeds: int | None = None
    overrides: Sequence[str] = ()
    protocol: Protocol = "paper"
    weights: Path | None = None
    device: str = "auto"
    jobs: int | None = None
    devices: int = 1
    jobs_per_gpu: int = 1
    mlflow: str | None = None
    dry_run: bool = False
    as_json: bool = False
    executor: Literal["local", "ray"] = "local"
    address: str | None = None
    plan_only: bool = False

    def count_seeds(self, recipe: Recipe) -> int:
        """Return the number of seeds: the option's, or the recipe's.

        Raises:
            UserError: less than 1.
        """
        seeds = recipe.seeds if self.seeds is None else self.seeds
        if seeds < 1:
            raise UserError(f"--seeds must be at least 1, got {seeds}")
        return seeds


def is_path(method: str) -> bool:
    """Whether a method is given as a file, rather than by name."""
    return method.endswith(".py") or "/" in method


def chosen_types(text: str) -> list[FeatureType]:
    """Return the types that an option names, separated by commas."""
    asked = [part.strip() for part in text.split(",") if part.strip()]
    for name in asked:
        if name not in FEATURE_TYPES:
            raise unknown_name("type", name, FEATURE_TYPES)
    if not asked:
        raise UserError("--types names no type; known: type-I, type-II")
    return [known for known in FEATURE_TYPES if known in asked]
