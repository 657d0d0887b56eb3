"""The plan: which jobs a comparison consists of, in an order that runs a base before what builds on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from hierbench.api.method import PostHoc
from hierbench.api.registry import Found, find_method, method_names
from hierbench.config.recipe import FEATURE_TYPES, FeatureType, Rates, Recipe
from hierbench.config.spec import DatasetSpec, MethodSpec, Spec, TrainSpec
from hierbench.data.prepared import Prepared
from hierbench.models.backbones import check_backbone
from hierbench.runs.job import Job
from hierbench.utils.errors import UserError, unknown_name


def type_rates(recipe: Recipe, feature_type: FeatureType) -> Rates:
    """Return the learning rates of a type."""
    return recipe.train.lr.type_i if feature_type == "type-I" else recipe.train.lr.type_ii


def check_request(recipe: Recipe, methods: Sequence[Found], types: Sequence[FeatureType]) -> None:
    """Raise a UserError for all that can be wrong before the data is there, so that no download precedes a typo."""
    check_backbone(recipe.model.backbone, recipe.model.weights, recipe.model.wrn_group_input)
    if recipe.data.jpeg_quality and recipe.dataset != "fgvc":
        raise UserError("data.jpeg_quality is a switch of fgvc alone: its published images were re-saved")
    size = min(recipe.expected.image_size)
    if recipe.augment.pad >= size:
        raise UserError(f"augment.pad = {recipe.augment.pad} must be less than the images' side, {size}")
    asked = {found.name: found for found in methods}
    for name, values in recipe.methods.items():
        if name in asked:
            asked[name].params(values)
        elif name not in method_names():  # a section for a method that is not run must still be one of a method
            raise unknown_name("method", name, method_names())
    if not any(kind in found.cls.types for found in methods for kind in types):
        names = ", ".join(found.name for found in methods)
        raise UserError(f"nothing to run: {names} cannot use {', '.join(types)}")


def make_plan(
    recipe: Recipe,
    prepared: Prepared,
    methods: Sequence[Found],
    types: Sequence[FeatureType],
    seeds: int,
    weights: str | None = None,
    tuned: Mapping[tuple[str, FeatureType], dict[str, Any]] | None = None,
) -> list[Job]:
    """Return the jobs of a comparison that `check_request` let pass: seeds outermost, so that all rows fill evenly.

    Args:
        recipe: the configuration.
        prepared: the dataset.
        methods: to compare.
        types: of models.
        seeds: how many, from 0.
        weights: SHA-256 of the backbone's weights file, see `hierbench.models.weights`.
        tuned: {(method, type): hyperparameters} in place of the recipe's.
    """
    recipes = {key: with_params(recipe, key[0], params) for key, params in (tuned or {}).items()}
    asked = {found.name: found for found in methods}
    jobs: dict[str, Job] = {}

    def add(found: Found, kind: FeatureType, seed: int, shown: bool) -> str:
        base = None
        if issubclass(found.cls, PostHoc):
            base = add(asked.get(found.cls.base) or find_method(found.cls.base), kind, seed, False)
        own = recipes.get((found.name, kind), recipe)
        job = Job(make_spec(own, prepared, found, kind, seed, weights, base), found, shown)
        if job.id not in jobs or shown:
            jobs[job.id] = job
        return job.id

    for seed in range(seeds):
        for feature_type in (known for known in FEATURE_TYPES if known in types):
            for found in methods:
                if feature_type in found.cls.types:
                    add(found, feature_type, seed, True)
    return list(jobs.values())


def with_params(recipe: Recipe, method: str, params: dict[str, Any]) -> Recipe:
    """Return the recipe with some of a method's hyperparameters changed."""
    values = recipe.params_of(method) | params
    return recipe.model_copy(update={"methods": recipe.methods | {method: values}})


def make_spec(
    recipe: Recipe,
    prepared: Prepared,
    found: Found,
    feature_type: FeatureType,
    seed: int,
    weights: str | None = None,
    base: str | None = None,
    split: Literal["test", "val"] = "test",
) -> Spec:
    """Return the spec of one job; see `make_plan` and `Spec` for the arguments."""
    return Spec(
        protocol=recipe.protocol,
        dataset=DatasetSpec(
            name=recipe.dataset,
            digest=prepared.digest,
            hierarchy=prepared.hierarchy(recipe.distance).digest(),
            distance=recipe.distance,
            jpeg_quality=recipe.data.jpeg_quality,
        ),
        method=MethodSpec(
            name=found.name,
            version=found.cls.version,
            code=found.code,
            params=found.params(recipe.params_of(found.name)).model_dump(mode="json"),
        ),
        type=feature_type,
        model=recipe.model,
        train=TrainSpec(
            **recipe.train.model_dump(exclude={"lr"}),  # "auto" precision has been resolved, see `Session.open`
            lr=type_rates(recipe, feature_type),
        ),
        augment=recipe.augment,
        evaluation=recipe.evaluation,
        weights=weights,
        split=split,
        seed=seed,
        base=base,
    )
