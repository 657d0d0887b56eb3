"""The report on a plan before it runs: one line, or a dry run's with the parameters of its models."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hierbench.config.recipe import Recipe
from hierbench.config.sections import FeatureType
from hierbench.utils.console import duration, say

if TYPE_CHECKING:  # a command that finds all jobs done does not import PyTorch
    from hierbench.api.registry import Found
    from hierbench.data.prepared import Prepared
    from hierbench.execution.estimate import Estimate, Extraction
    from hierbench.runs.job import Job, State


@dataclass(frozen=True)
class Line:
    """A job of a plan, which may be blocked by missing data or weights."""

    method: str
    type: FeatureType
    seed: int
    state: State
    id: str | None = None  # None for a blocked job
    base: str | tuple[str, ...] | None = None  # as in the spec: the id of the job that it re-ranks, or the ids
    trains: bool = True  # rather than re-ranks


def lines_of_plan(plan: Sequence[Job], state: dict[str, State]) -> list[Line]:
    """Return the lines of a plan."""
    return [
        Line(job.spec.method.name, job.spec.type, job.spec.seed, state[job.id], job.id, job.spec.base, job.trains)
        for job in plan
    ]


def blocked_lines(methods: Sequence[Found], types: Sequence[FeatureType], seeds: int) -> list[Line]:
    """Return the lines of the plan that missing data or weights block."""
    return [
        Line(found.name, feature_type, seed, "blocked", trains=found.trains)
        for seed in range(seeds)
        for feature_type in types
        for found in methods
        if feature_type in found.cls.types
    ]


def parameters_of(
    recipe: Recipe, methods: Sequence[Found], types: Sequence[FeatureType]
) -> dict[tuple[FeatureType, str], int]:
    """Return the number of parameters of each model; methods that re-rank have none."""
    from hierbench.execution.parameters import count_parameters, stand_in_tree

    tree = stand_in_tree(recipe.expected.level_sizes)
    return {
        (feature_type, found.name): count_parameters(found, recipe, tree, feature_type)
        for feature_type in types
        for found in methods
        if feature_type in found.cls.types and found.trains
    }


def say_notes(prepared: Prepared) -> None:
    """Print the remarks on a dataset and its terms of use."""
    for note in (prepared.meta["remark"], prepared.meta.get("notice", "")):
        if note:
            say(f"note: {note}")


def summary(recipe: Recipe, lines: Sequence[Line], seconds: float | None, device: str, blocked: str) -> str:
    """Return the plan in one line."""
    counts = Counter(line.state for line in lines)
    jobs = f"{len(lines)} job{'s' * (len(lines) != 1)}"
    if blocked:
        text = f"{jobs}, all blocked: {blocked}"
    else:
        parts = [f"{counts['train']} to train", f"{counts['rescore']} to re-rank", f"{counts['cached']} cached"]
        text = f"{jobs}, {', '.join(parts)}"
    if seconds and (blocked or counts["train"]):
        text += f"; at least {duration(seconds)} on this machine ({device})"
    return f"{recipe.title}, protocol {recipe.protocol}: {text}"


def describe(extraction: Extraction, recipe: Recipe) -> str:
    """Return a cache of features in one line."""
    views = f"{recipe.model.views} view{'s' * (recipe.model.views > 1)}"
    text = f"{extraction.pool}-pooled features of {recipe.model.backbone}: {extraction.images:,} images, "
    text += f"{views} in training, {extraction.bytes / 1e6:,.1f} MB, "
    if extraction.cached:
        return f"{text}cached"
    return f"{text}to extract" + ("" if extraction.seconds is None else f", about {duration(extraction.seconds)}")


def show_dry_run(
    recipe: Recipe,
    lines: Sequence[Line],
    found: Estimate,
    models: dict[tuple[FeatureType, str], int],
    device: str,
    blocked: str,
    *,
    as_json: bool,
) -> None:
    """Print plan, parameters and time; JSON on standard output, the rest on standard error."""
    if as_json:
        content = {
            "schema": 1,
            "dataset": recipe.dataset,
            "protocol": recipe.protocol,
            **({"blocked": blocked} if blocked else {}),
            "estimated_seconds": found.seconds,
            "models": [
                {
                    "type": type_,
                    "method": name,
                    "parameters": parameters,
                    "seconds_per_job": found.per_job.get(type_),
                }
                for (type_, name), parameters in models.items()
            ],
            **({"features": list(map(vars, found.extractions))} if found.extractions else {}),
            "jobs": [
                {key: getattr(line, key) for key in ("id", "method", "type", "seed", "state", "base")} for line in lines
            ],
        }
        print(json.dumps(content, indent=1))
        return
    say(summary(recipe, lines, found.seconds, device, blocked))
    size = recipe.model.input_size or recipe.expected.image_size
    for extraction in found.extractions:
        say(describe(extraction, recipe))
    trained = recipe.model.backbone
    if size is not None:
        trained = f"{'on features of ' * recipe.model.frozen}{trained}, {size[0]}x{size[1]}"
    say(f"models ({trained}):")
    for (feature_type, name), parameters in models.items():
        seconds = found.per_job.get(feature_type)
        time = "" if seconds is None else f"  at least {duration(seconds)} per seed"
        say(f"  {feature_type:8} {name:20} {parameters:>12,} parameters{time}")
    if again := sorted({line.method for line in lines if not line.trains}):
        say(f"  {', '.join(again)}: nothing is trained, predictions are re-ranked")
    for line in lines:
        say(f"  {line.state:8} {(line.id or '')[:12]:12}  {line.method} {line.type} seed {line.seed}")
