"""The jobs of a comparison, each after the base that it re-ranks, with their specs."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from hierbench.api.method import PostHoc, base_names
from hierbench.api.registry import (
    BrokenMethod,
    LoadedMethod,
    find_method,
    find_or_broken,
    is_installed,
    method_group,
    method_names,
)
from hierbench.config.options import Options
from hierbench.config.overrides import methods_set
from hierbench.config.rates import PREFIX, checked_section, own_rates
from hierbench.config.recipe import AnyRecipe, Recipe, ResolvedRecipe
from hierbench.config.sections import FEATURE_TYPES, FeatureType
from hierbench.config.spec import DatasetSpec, MethodSpec, Spec, TrainSpec
from hierbench.data.prepared import Prepared
from hierbench.execution.rate_groups import check_rates, has_own_groups
from hierbench.models.libraries.lookup import check_backbone
from hierbench.runs.job import Job
from hierbench.utils.console import say
from hierbench.utils.errors import UserError, unknown_name


def check_request(
    recipe: Recipe, methods: Sequence[LoadedMethod], types: Sequence[FeatureType], overrides: Sequence[str] = ()
) -> None:
    """Raise a UserError for mistakes that can be found without the data, so that no download precedes a typo.

    A recipe may have sections of methods that do not take part; the user's own `overrides` in it may not.
    """
    if recipe.model.frozen and recipe.model.weights == "none" and not recipe.model.given_features:
        raise UserError(
            f"{recipe.model.backbone} is frozen and has no weights: set model.weights (default: the library's own), "
            "give a file with --weights FILE, or ask for random ones on purpose with --set model.weights=random"
        )
    check_backbone(recipe.model)
    if recipe.data.jpeg_quality and recipe.data.dataset != "fgvc":
        raise UserError("data.jpeg_quality is only for fgvc, whose published images were re-saved")
    size = min(recipe.expected.image_size or [0])
    if size and recipe.augment.pad >= size:
        raise UserError(f"augment.pad = {recipe.augment.pad} must be less than the images' side, {size}")
    method_by_name = {method.name: method for method in methods}
    for name in {**recipe.methods, **recipe.tune.grid}:
        if name in method_by_name:
            check_section(recipe, method_by_name[name])
        elif not is_installed(name) and (name != "all" or name in recipe.methods):
            raise unknown_name("method", name, method_names())  # a section of a method that is not run must name one
    taking_part = with_bases(methods)
    for override in overrides:
        for name in methods_set(override):
            if name not in taking_part and name != "all":
                raise UserError(
                    f"--set {override}: {name} does not take part, only {', '.join(taking_part)}; name it among the "
                    "methods, or leave the setting out"
                )
    if not any(feature_type in method.cls.types for method in methods for feature_type in types):
        names = ", ".join(method.name for method in methods)
        raise UserError(f"nothing to run: {names} cannot use {', '.join(types)}")


def check_section(recipe: Recipe, method: LoadedMethod) -> None:
    """Raise a UserError if a recipe sets a hyperparameter that a method does not have."""
    method.params(recipe.params_for(method.name))
    if issubclass(method.cls, PostHoc) and "lr" in recipe.methods.get(method.name, {}):
        bases = " or ".join(f"methods.{base}.lr" for base in base_names(method.cls))
        raise UserError(f"methods.{method.name}.lr: {method.name} is not trained; set {bases}")
    check_rates(recipe, method)


def with_bases(methods: Sequence[LoadedMethod]) -> dict[str, LoadedMethod]:
    """Return {name: method} of these methods and of their bases."""
    method_by_name = {method.name: method for method in methods}
    open_ends = list(methods)
    while open_ends:
        method = open_ends.pop()
        if not issubclass(method.cls, PostHoc):
            continue
        for base in base_names(method.cls):
            if base not in method_by_name:
                method_by_name[base] = find_method(base)
                open_ends.append(method_by_name[base])
            if method.cls.needs_validation and not method_by_name[base].trains:
                raise UserError(
                    f"{method.name} needs validation scores of {base}, which has none: it re-ranks predictions on the "
                    "test split"
                )
    return method_by_name


def make_jobs(
    recipe: ResolvedRecipe,
    prepared: Prepared,
    methods: Sequence[LoadedMethod],
    types: Sequence[FeatureType],
    seeds: int,
    weights: str | None = None,
    tuned: Mapping[tuple[str, FeatureType], dict[str, Any]] | None = None,
) -> list[Job]:
    """Return the jobs of a comparison that passed `check_request`, ordered by seed so that all rows fill evenly.

    `weights` is the SHA-256 of the file of initial backbone weights, `tuned` {(method, type): hyperparameters and
    learning rates} replaces those of the recipe.
    """
    recipes = {key: with_params(recipe, key[0], params) for key, params in (tuned or {}).items()}
    method_by_name = with_bases(methods)
    jobs: dict[str, Job] = {}
    hierarchy = prepared.hierarchy(recipe.distance)

    def add(method: LoadedMethod, feature_type: FeatureType, seed: int, shown: bool) -> Spec:
        method_recipe = recipes.get((method.name, feature_type), recipe)
        bases: list[LoadedMethod] = []
        if issubclass(method.cls, PostHoc):
            bases = [method_by_name[base] for base in base_names(method.cls)]
        else:
            check_rates(method_recipe, method, hierarchy, feature_type)
            _check_targets(method, prepared, method_by_name.values())
        for base in bases:
            if feature_type not in base.cls.types:
                raise UserError(f"{method.name} cannot use {feature_type}: it re-ranks {base.name}, which does not")
        specs = [add(base, feature_type, seed, False) for base in bases]
        job = Job(
            make_spec(method_recipe, prepared, method, feature_type, seed, weights, specs), method, shown, tuple(bases)
        )
        if job.id not in jobs or shown:
            jobs[job.id] = job
        return job.spec

    for seed in range(seeds):
        for feature_type in (name for name in FEATURE_TYPES if name in types):
            for method in methods:
                if feature_type in method.cls.types:
                    add(method, feature_type, seed, True)
    return list(jobs.values())


def _check_targets(method: LoadedMethod, prepared: Prepared, methods: Iterable[LoadedMethod]) -> None:
    """Raise a UserError for a trained method that cannot learn from training labels above the classes."""
    if prepared.has_labels_above and not getattr(method.cls, "accepts_nodes", False):
        able = ",".join(other.name for other in methods if getattr(other.cls, "accepts_nodes", False))
        way = f"--methods {able}, or " if able else ""
        raise UserError(
            f"{method.name} learns from classes alone, and {prepared.meta['labels_above']:,} training labels are above "
            f"the classes (labels_above): {way}without that key in the dataset's file"
        )


def with_params(recipe: AnyRecipe, method: str, params: dict[str, Any]) -> AnyRecipe:
    """Return the recipe with some of a method's hyperparameters changed; "lr.NAME" changes a learning rate.

    Raises:
        UserError: a learning rate is unknown or not positive.
    """
    section = dict(recipe.methods.get(method, {}))
    rates = {name.removeprefix(PREFIX): value for name, value in params.items() if name.startswith(PREFIX)}
    section |= {name: value for name, value in params.items() if not name.startswith(PREFIX)}
    try:
        if rates:
            section["lr"] = own_rates(section) | rates
        changed = recipe.model_copy(update={"methods": recipe.methods | {method: checked_section(section)}})
    except UserError as error:
        raise UserError(f"methods.{method}: {error}") from None
    if rates and is_installed(method):
        loaded = find_method(method)
        if not has_own_groups(loaded):
            check_rates(changed, loaded)  # nothing is built
    return changed


def dataset_spec(recipe: Recipe, prepared: Prepared) -> DatasetSpec:
    """Return the spec of the prepared data of a recipe."""
    return DatasetSpec(
        name=recipe.dataset,
        digest=prepared.digest,
        hierarchy=prepared.hierarchy(recipe.distance).digest(),
        distance=recipe.distance,
        jpeg_quality=recipe.data.jpeg_quality,
    )


def make_spec(
    recipe: ResolvedRecipe,
    prepared: Prepared,
    method: LoadedMethod,
    feature_type: FeatureType,
    seed: int,
    weights: str | None = None,
    bases: Sequence[Spec] = (),
    split: Literal["test", "val"] = "test",
) -> Spec:
    """Return the spec of one job, see `make_jobs` and `Spec`; a post-hoc job has its first base's learning rates."""
    ids = tuple(base.id for base in bases)
    return Spec(
        protocol=recipe.protocol,
        dataset=dataset_spec(recipe, prepared),
        method=MethodSpec(
            name=method.name,
            version=method.cls.version,
            code=method.code,
            params=method.params(recipe.params_for(method.name)).model_dump(mode="json"),
        ),
        type=feature_type,
        model=recipe.model,
        train=TrainSpec(
            **recipe.train.model_dump(exclude={"lr"}),  # "auto" precision has been resolved, see `resolve`
            lr=recipe.rates_for(method.name, feature_type) if not bases else bases[0].train.lr,
        ),
        augment=recipe.augment,
        evaluation=recipe.evaluation,
        weights=weights,
        split=split,
        seed=seed,
        base=(ids[0] if len(ids) == 1 else ids) if ids else None,  # of one base the id itself, as ever
    )


def find_methods(names: Sequence[str]) -> tuple[list[LoadedMethod], int]:
    """Return the requested methods, and how many cannot be imported: those are reported and left out."""
    loaded = [find_or_broken(member) for name in names for member in method_group(name)]
    methods = {item.name: item for item in loaded if isinstance(item, LoadedMethod)}
    broken = [item for item in loaded if isinstance(item, BrokenMethod)]
    if not methods:
        reasons = "; ".join(item.reason for item in broken)
        raise UserError(reasons or "--methods names no method; use all, paper, or names separated by commas")
    for item in broken:
        say(f"warning: {item.reason}; it is left out")
    return list(methods.values()), len(broken)


def requested_methods(options: Options) -> list[str]:
    """Return the names and paths of --methods, each once."""
    return list(dict.fromkeys(name.strip() for name in options.methods.split(",") if name.strip()))
