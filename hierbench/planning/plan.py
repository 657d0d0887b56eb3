"""The plan: the jobs of a comparison, each after the base that it re-ranks."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from hierbench.api.method import PostHoc
from hierbench.api.registry import Found, find_method, method_names
from hierbench.config.recipe import FEATURE_TYPES, FeatureType, Recipe
from hierbench.config.spec import DatasetSpec, MethodSpec, Spec, TrainSpec
from hierbench.data.prepared import Prepared
from hierbench.models.library import check_backbone
from hierbench.runs.job import Job
from hierbench.utils.errors import UserError, unknown_name


def check_request(recipe: Recipe, methods: Sequence[Found], types: Sequence[FeatureType]) -> None:
    """Raise a UserError for mistakes that can be found without the data, so that no download precedes a typo."""
    check_backbone(recipe.model)
    if recipe.data.jpeg_quality and recipe.dataset != "fgvc":
        raise UserError("data.jpeg_quality is only for fgvc, whose published images were re-saved")
    size = min(recipe.expected.image_size)
    if recipe.augment.pad >= size:
        raise UserError(f"augment.pad = {recipe.augment.pad} must be less than the images' side, {size}")
    asked = {found.name: found for found in methods}
    for name, values in recipe.methods.items():
        if name in asked:
            asked[name].params(values)
        elif name not in method_names():  # a section of a method that is not run must still name one
            raise unknown_name("method", name, method_names())
    if not any(feature_type in found.cls.types for found in methods for feature_type in types):
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
    """Return the jobs of a comparison that passed `check_request`, ordered by seed so that all rows fill evenly.

    `weights` is the SHA-256 of the file of initial backbone weights, `tuned` {(method, type): hyperparameters} replaces
    those of the recipe.
    """
    recipes = {key: with_params(recipe, key[0], params) for key, params in (tuned or {}).items()}
    asked = {found.name: found for found in methods}
    jobs: dict[str, Job] = {}

    def add(found: Found, feature_type: FeatureType, seed: int, shown: bool) -> str:
        base = None
        if issubclass(found.cls, PostHoc):
            base = add(asked.get(found.cls.base) or find_method(found.cls.base), feature_type, seed, False)
        own = recipes.get((found.name, feature_type), recipe)
        job = Job(make_spec(own, prepared, found, feature_type, seed, weights, base), found, shown)
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
    """Return the spec of one job, see `make_plan` and `Spec`."""
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
            lr=recipe.train.lr.of(feature_type),
        ),
        augment=recipe.augment,
        evaluation=recipe.evaluation,
        weights=weights,
        split=split,
        seed=seed,
        base=base,
    )
