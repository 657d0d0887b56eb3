"""Recipes: one TOML file per comparison, read into closed models; an unknown key is an error with a suggestion."""

import os
import tomllib
from collections.abc import Sequence
from functools import cache, lru_cache
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import AfterValidator, Field, model_validator

from hierbench.config.overrides import apply_override, merged
from hierbench.config.rates import JobRates, checked_section, own_rates
from hierbench.config.rates import Rates as Rates
from hierbench.config.recipe_source import SourceSection, check_name, is_dataset_file
from hierbench.config.sections import (
    FEATURE_TYPES,
    FEATURES,
    Augment,
    Data,
    Evaluation,
    Expected,
    FeatureType,
    Model,
    Protocol,
    Train,
    Tune,
)
from hierbench.config.validation import Closed, validated
from hierbench.utils.errors import UserError, unknown_name
from hierbench.utils.files import read_given


class Recipe(Closed):
    """Everything that defines the comparison on one dataset."""

    dataset: str
    title: str
    remark: str = ""  # printed below every table
    protocol: Protocol = "paper"
    distance: Literal["height", "depth"] = "height"
    seeds: Annotated[int, Field(ge=1, le=1_000)]
    expected: Expected
    source: SourceSection | None = None  # of a user's dataset
    data: Data = Data()
    model: Model
    train: Train
    augment: Augment = Augment(flip=False)  # of images
    evaluation: Evaluation = Evaluation()
    tune: Tune = Tune()
    # Hyperparameters by method; a table `lr` replaces learning rates of the type for one method.
    methods: dict[str, Annotated[dict[str, Any], AfterValidator(checked_section)]] = Field(default={})

    @property
    def user_source(self) -> SourceSection:
        """The images or features and the tree of a user's dataset."""
        assert self.source is not None, self.dataset
        return self.source

    @property
    def image_size(self) -> tuple[int, int]:
        """(H, W) of the images, where it is one of images; `_is_whole` requires it there."""
        assert self.expected.image_size is not None, self.dataset
        return self.expected.image_size

    @model_validator(mode="before")
    @classmethod
    def _fits_inputs(cls, content: dict[str, Any]) -> dict[str, Any]:
        """Refuse keys for images in a recipe of features, before its other keys are read."""
        model = content.get("model")
        backbone = model.get("backbone") if isinstance(model, dict) else None
        if isinstance(backbone, str) and FEATURES.fullmatch(backbone) and "augment" in content:
            raise ValueError(f"section augment is for images; leave it out with {backbone}")
        return content

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if not self.model.given_features:
            if "augment" not in self.model_fields_set:
                raise ValueError("key augment is missing")
            if self.expected.image_size is None:
                raise ValueError("key expected.image_size is missing")
        if self.model.crops and self.model.views > 2 and self.augment.crop == "pad" and not self.augment.pad:
            raise ValueError(
                "model.views > 2 are random crops: set augment.pad > 0, or augment.crop = random-resized without pad"
            )
        if self.model.frozen and self.train.layer_decay != 1:
            raise ValueError("train.layer_decay needs a trained backbone; leave it out with model.frozen")
        short = sorted(Expected.model_fields.keys() - self.expected.model_fields_set - {"image_size"})
        if self.source is None and short:
            raise ValueError(f"key expected.{short[0]} is missing")
        return self

    def params_for(self, method: str) -> dict[str, Any]:
        """Return the hyperparameters that the recipe sets for a method; the others keep their defaults."""
        return {name: value for name, value in self.methods.get(method, {}).items() if name != "lr"}

    def rates_for(self, method: str, feature_type: FeatureType) -> JobRates:
        """Return the learning rates of a method: its own rates, else the rates of the type."""
        shared = self.train.lr.of(feature_type).model_dump()
        return JobRates.model_validate(shared | own_rates(self.methods.get(method, {})))


class ResolvedRecipe(Recipe):
    """A recipe that leaves nothing to its backbone's library, its data or the device: jobs are planned from it."""


AnyRecipe = TypeVar("AnyRecipe", bound=Recipe)


def chosen_types(text: str) -> list[FeatureType]:
    """Return the types in a comma-separated list."""
    names = [part.strip() for part in text.split(",") if part.strip()]
    for name in names:
        if name not in FEATURE_TYPES:
            raise unknown_name("type", name, FEATURE_TYPES)
    if not names:
        raise UserError("--types names no type; known: type-I, type-II")
    return [feature_type for feature_type in FEATURE_TYPES if feature_type in names]


@cache
def recipe_names() -> tuple[str, ...]:
    """Return the names of the built-in recipes."""
    files = resources.files("hierbench.benchmarks").iterdir()
    return tuple(sorted(file.name.removesuffix(".toml") for file in files if file.name.endswith(".toml")))


def load_recipe(dataset: str, overrides: Sequence[str] = (), protocol: Protocol = "paper") -> Recipe:
    """Read a dataset's recipe, apply the protocol's changes, then the `KEY=VALUE` overrides.

    A recipe's own keys are the paper's protocol; its section `[authors]` holds the keys in which the published pipeline
    differs.

    Args:
        dataset: the name of a built-in recipe, or a user's file, a path that ends in .toml or contains a slash: with a
            section `[source]`, or `data`, the file of a dataset whose images it uses.
        overrides: `KEY=VALUE`, as in "train.epochs=3".
        protocol: "paper" or "authors", which chooses the keys.

    Raises:
        UserError: no such recipe, an override without "=", an unknown key or an invalid value.
    """
    where, text = recipe_text(dataset)
    try:
        content = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also a number of thousands of digits
        raise UserError(f"{where} is not valid TOML: {error}") from None
    authors = content.pop("authors", None)
    name = content.get("dataset")
    if authors is not None and not isinstance(authors, dict):
        raise UserError(f"{where}: authors is a value; the section [authors] holds the keys of --protocol authors")
    if protocol == "authors":
        if authors is None and is_dataset_file(dataset):
            raise UserError(f"{where} has no section [authors]; --protocol authors is for published pipelines")
        content = merged(content, authors or {}, f"{where}, [authors]: ")
    base = _take_images(content, dataset, where)
    images = content["data"]["dataset"]
    for override in overrides:
        apply_override(content, override)
    content.setdefault("protocol", protocol)
    data = content["data"]
    if (data.get("dataset") if isinstance(data, dict) else data) != images:
        raise UserError(f"{where}: data = {data!r}; a recipe's images are those that its file names")
    recipe = parse_recipe(content, where)
    if recipe.protocol != protocol:
        raise UserError(f"{where}: protocol = {recipe.protocol!r}; choose a protocol with --protocol")
    if recipe.dataset != (name if is_dataset_file(dataset) else dataset):
        raise UserError(f"{where}: dataset = {recipe.dataset!r}; choose a recipe with --dataset")
    if is_dataset_file(dataset):
        return _of_user(recipe, where, Path(dataset), base)
    if recipe.source is not None:
        raise UserError(f"{where}: source is for a dataset of your own; see docs/your-data.md")
    return recipe


@lru_cache(maxsize=256)
def shipped_recipe(dataset: str, overrides: tuple[str, ...] = (), protocol: Protocol = "paper") -> Recipe:
    """Return `load_recipe` of a built-in dataset, read once: shipped recipes do not change while a program runs."""
    return load_recipe(dataset, overrides, protocol)


def with_weights_file(recipe: Recipe, file: Path | None) -> Recipe:
    """Return the recipe of a command with a file of weights: without weights of its own, it starts from the file."""
    if file is not None and not file.is_file():
        raise UserError(f"--weights: no file {file}")
    if file is None or recipe.model.weights not in ("none", "random"):
        return recipe
    return recipe.model_copy(update={"model": recipe.model.model_copy(update={"weights": "file"})})


def recipe_text(dataset: str) -> tuple[str, str]:
    """Return how errors call the recipe of a dataset, and its text."""
    if is_dataset_file(dataset):
        if not os.path.lexists(dataset):
            raise UserError(f"no file {dataset}; hierbench data new writes one for a folder of images")
        return dataset, read_given(Path(dataset), dataset)
    if dataset not in recipe_names():
        file = f"./{dataset}.toml"
        if os.path.lexists(file):
            raise UserError(f"unknown recipe {dataset!r}; did you mean {file}?")
        raise unknown_name("recipe", dataset, recipe_names())
    text = resources.files("hierbench.benchmarks").joinpath(f"{dataset}.toml").read_text(encoding="utf-8")
    return f"recipe {dataset}", text


def _take_images(content: dict[str, Any], dataset: str, where: str) -> Recipe | None:
    """Resolve `data` of a recipe's content; return the recipe that it names, with images, tree and sizes."""
    data = content.get("data", {})
    data = dict(data) if isinstance(data, dict) else {"dataset": data}
    named = data.setdefault("dataset", content.get("dataset", ""))
    content["data"] = data
    if not is_dataset_file(dataset) or named == content.get("dataset") or not isinstance(named, str):
        return None
    if not is_dataset_file(named):
        raise UserError(f'{where}: data = {named!r} is not the file of your dataset, as in data = "./birds.toml"')
    if "source" in content:
        raise UserError(f"{where}: data = {named!r} or a section [source], not both")
    file = Path(dataset).parent / named
    if file.resolve() == Path(dataset).resolve():
        raise UserError(f"{where}: data = {named!r} names itself")
    base = load_recipe(str(file))
    if base.data.dataset != base.dataset:
        raise UserError(f"{where}: data = {named!r} is itself a recipe of other images; name their file")
    data["dataset"] = base.dataset
    content["source"] = base.source
    content.setdefault("expected", base.expected.model_dump(exclude_unset=True))
    return base


def _of_user(recipe: Recipe, where: str, file: Path, base: Recipe | None) -> Recipe:
    """Return the recipe of a user's file with absolute paths, after checking its name."""
    check_name(recipe.dataset, recipe_names(), where)
    if recipe.source is None:
        raise UserError(f"{where}: section [source] is missing: the images and the tree of your dataset")
    if recipe.data.jpeg_quality:
        raise UserError(f"{where}: data.jpeg_quality is only for fgvc, whose published images were re-saved")
    if base is None:
        return recipe.model_copy(update={"source": recipe.source.below(file.absolute().parent)})
    size = recipe.expected.image_size
    if size is None or size == base.expected.image_size:
        return recipe
    data = recipe.data.model_copy(update={"dataset": f"{base.dataset}-{size[0]}x{size[1]}"})  # prepared apart
    return recipe.model_copy(update={"data": data})


def image_dataset(name: str) -> str:
    """Return the image dataset of a built-in recipe; any other name as it is."""
    return shipped_recipe(name).data.dataset if name in recipe_names() else name


def load_protocols(dataset: str) -> list[Recipe]:
    """Return a dataset's recipe under each protocol; a user's file has the paper's alone unless it has [authors]."""
    first = load_recipe(dataset)
    if is_dataset_file(dataset) and "authors" not in tomllib.loads(recipe_text(dataset)[1]):
        return [first]
    return [first, load_recipe(dataset, protocol="authors")]


def dataset_name(dataset: str) -> str:
    """Return the name of a dataset in the records of its runs, given its name or its file."""
    return load_recipe(dataset).dataset if is_dataset_file(dataset) else dataset


def dataset_title(dataset: str) -> str:
    """Return a dataset's title; of a user's dataset that is given by name, the name."""
    return load_recipe(dataset).title if is_dataset_file(dataset) or dataset in recipe_names() else dataset


def parse_recipe(content: dict[str, Any], where: str) -> Recipe:
    """Validate a recipe's content; `where` begins the error's line."""
    return validated(Recipe, content, where)
