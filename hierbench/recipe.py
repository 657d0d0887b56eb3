"""Recipes: one TOML file per dataset, read into closed models; an unknown key is an error that names the nearest."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from importlib import resources
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hierbench.errors import UserError, unknown_name

FeatureType = Literal["type-I", "type-II"]
FEATURE_TYPES: tuple[FeatureType, ...] = ("type-I", "type-II")


class _Closed(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, populate_by_name=True)


Rate = Annotated[float, Field(gt=0)]


class Rates(_Closed):
    """Initial learning rates of one type of model."""

    backbone: Rate
    transform: Rate
    classifier: Rate


class RatesOfTypes(_Closed):
    """Learning rates per type."""

    type_i: Rates = Field(alias="type-I")
    type_ii: Rates = Field(alias="type-II")


class Model(_Closed):
    """Backbone and its weights."""

    backbone: str
    weights: Literal["none", "imagenet1k-v1"] = "none"


class Train(_Closed):
    """Optimiser, schedule and length (FIDELITY rows 16 to 21 of the paper's configuration)."""

    epochs: Annotated[int, Field(ge=1)]
    batch_size: Annotated[int, Field(ge=2)]
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    weight_decay: Annotated[float, Field(ge=0)] = 5e-4
    lr: RatesOfTypes


class Augment(_Closed):
    """Augmentation and normalisation."""

    pad: Annotated[int, Field(ge=0)]
    pad_mode: Literal["reflect", "zero"] = "zero"
    flip: bool
    mean: tuple[float, float, float]
    std: tuple[Rate, Rate, Rate]


class Recipe(_Closed):
    """Everything that defines the comparison on one dataset."""

    dataset: str
    title: str
    distance: Literal["height", "depth"] = "height"
    seeds: Annotated[int, Field(ge=1)]
    model: Model
    train: Train
    augment: Augment
    methods: dict[str, dict[str, Any]] = {}


def recipe_names() -> list[str]:
    """Return the datasets that have a recipe."""
    files = resources.files("hierbench.benchmarks").iterdir()
    return sorted(file.name.removesuffix(".toml") for file in files if file.name.endswith(".toml"))


def load_recipe(dataset: str, overrides: Sequence[str] = ()) -> Recipe:
    """Read a dataset's recipe and apply `KEY=VALUE` overrides.

    Raises:
        UserError: no such recipe, an override without "=", an unknown key or a value of the wrong kind.
    """
    if dataset not in recipe_names():
        raise unknown_name("dataset", dataset, recipe_names())
    text = resources.files("hierbench.benchmarks").joinpath(f"{dataset}.toml").read_text(encoding="utf-8")
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"recipe {dataset} is no TOML: {error}") from None
    for override in overrides:
        _override(content, override)
    recipe = parse_recipe(content, f"recipe {dataset}")
    if recipe.dataset != dataset:
        raise UserError(f"recipe {dataset}: dataset = {recipe.dataset!r}; choose a dataset with --dataset")
    return recipe


def parse_recipe(content: dict[str, Any], where: str) -> Recipe:
    """Check a recipe's content; `where` begins the error's line."""
    try:
        return Recipe.model_validate(content)
    except ValidationError as error:
        raise UserError(f"{where}: {_first_problem(error, Recipe)}") from None


def describe_params_error(error: ValidationError, model: type[BaseModel], method: str) -> UserError:
    """Return the one-line error for a method's bad hyperparameters."""
    return UserError(f"hyperparameters of {method}: {_first_problem(error, model)}")


def _first_problem(error: ValidationError, model: type[BaseModel]) -> str:
    first = error.errors()[0]
    location = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        return str(unknown_name("key", location, _keys(model)))
    if first["type"] == "missing":
        return f"key {location} is missing"
    return f"{location} = {first['input']!r}: {first['msg'][0].lower()}{first['msg'][1:]}"


def _keys(model: type[BaseModel], prefix: str = "") -> list[str]:
    """Return all dotted keys of a closed model."""
    keys = []
    for name, field in model.model_fields.items():
        key = prefix + (field.alias or name)
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            keys += _keys(inner, f"{key}.")
        else:
            keys.append(key)
    return keys


def _override(content: dict[str, Any], override: str) -> None:
    key, equals, text = override.partition("=")
    parts = [part.strip() for part in key.split(".")]
    if not equals or not all(parts):
        raise UserError(f"--set takes KEY=VALUE, as in train.epochs=3, got {override!r}")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text.strip()  # a bare word: no need for quotes within quotes on the command line
    for part in parts[:-1]:
        content = content.setdefault(part, {})
        if not isinstance(content, dict):
            raise UserError(f"--set {override}: {part} is a value, not a section")
    content[parts[-1]] = value
