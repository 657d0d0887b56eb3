"""The plan: which jobs a comparison consists of, in an order that runs a base before what builds on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hierbench.data.prepared import Prepared
from hierbench.discovery import Found, find_method
from hierbench.errors import UserError
from hierbench.job import DatasetSpec, MethodSpec, Spec, TrainSpec
from hierbench.method import PostHoc
from hierbench.recipe import FEATURE_TYPES, FeatureType, Rates, Recipe


@dataclass(frozen=True)
class Job:
    """A spec with what is needed to run it; `shown` is False for a base that nobody asked to see."""

    spec: Spec
    found: Found
    shown: bool = True

    @property
    def id(self) -> str:
        """The spec's id."""
        return self.spec.id

    @property
    def trains(self) -> bool:
        """Whether it trains, rather than re-ranks."""
        return not issubclass(self.found.cls, PostHoc)


def type_rates(recipe: Recipe, feature_type: FeatureType) -> Rates:
    """Return the learning rates of a type."""
    return recipe.train.lr.type_i if feature_type == "type-I" else recipe.train.lr.type_ii


def make_plan(
    recipe: Recipe, prepared: Prepared, methods: Sequence[Found], types: Sequence[FeatureType], seeds: int
) -> list[Job]:
    """Return the jobs of a comparison: seeds outermost, so that a leaderboard fills evenly.

    Raises:
        UserError: no method can stand on the types, or a hyperparameter does not fit its method.
    """
    unused = set(recipe.methods) - {found.name for found in methods}
    for name in unused:  # a section for a method that is not run must still be one of a method
        find_method(name).params(recipe.methods[name])
    jobs: dict[str, Job] = {}
    for seed in range(seeds):
        for feature_type in (known for known in FEATURE_TYPES if known in types):
            for found in methods:
                if feature_type in found.cls.types:
                    _add(jobs, recipe, prepared, found, feature_type, seed)
    if not jobs:
        names = ", ".join(found.name for found in methods)
        raise UserError(f"nothing to run: {names} can not stand on {', '.join(types)}")
    return list(jobs.values())


def _add(
    jobs: dict[str, Job],
    recipe: Recipe,
    prepared: Prepared,
    found: Found,
    feature_type: FeatureType,
    seed: int,
    shown: bool = True,
) -> str:
    base = None
    if issubclass(found.cls, PostHoc):
        base = _add(jobs, recipe, prepared, find_method(found.cls.base), feature_type, seed, shown=False)
    spec = Spec(
        dataset=DatasetSpec(
            name=recipe.dataset,
            digest=prepared.digest,
            hierarchy=prepared.hierarchy(recipe.distance).digest(),
            distance=recipe.distance,
        ),
        method=MethodSpec(
            name=found.name,
            version=found.cls.version,
            code=found.code,
            params=found.params(recipe.methods.get(found.name, {})).model_dump(mode="json"),
        ),
        type=feature_type,
        model=recipe.model,
        train=TrainSpec(
            **recipe.train.model_dump(exclude={"lr"}),
            lr=type_rates(recipe, feature_type),
        ),
        augment=recipe.augment,
        seed=seed,
        base=base,
    )
    job_id = spec.id
    if job_id not in jobs:
        jobs[job_id] = Job(spec, found, shown)
    elif shown and not jobs[job_id].shown:
        jobs[job_id] = replace(jobs[job_id], shown=True)
    return job_id
