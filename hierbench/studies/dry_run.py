"""A plan before it runs: a line, the table of a dry run with parameters and time, or that of its commands."""

import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hierbench.api.registry import LoadedMethod
from hierbench.config.recipe import Recipe
from hierbench.config.sections import FeatureType
from hierbench.data.prepared import Prepared
from hierbench.data.writer import SPLITS
from hierbench.execution import workers
from hierbench.execution.estimate import Estimate, Extraction, estimate
from hierbench.execution.resources import Setting, make_setting
from hierbench.execution.session import Session
from hierbench.execution.single_job import job_command
from hierbench.leaderboard import table as tables
from hierbench.leaderboard.table import Number, Table, Text
from hierbench.runs.job import Job, JobState
from hierbench.utils.console import duration, say
from hierbench.utils.text import counted

STATE_WORDS = {"train": "to train", "rescore": "to re-rank", "cached": "cached", "blocked": "blocked"}
WEIGHT_BYTES = 12  # of a parameter in training: itself, its gradient and its momentum in single precision
Models = Mapping[tuple[FeatureType, str], int]  # parameters by type and method


@dataclass(frozen=True)
class PlannedJob:
    """A job of a plan, which may be blocked by missing data or weights."""

    method: str
    type: FeatureType
    seed: int
    state: JobState
    id: str | None = None  # None for a blocked job
    base: str | tuple[str, ...] | None = None  # as in the spec: the id of the job that it re-ranks, or the ids
    trains: bool = True  # rather than re-ranks


def lines_of_plan(plan: Sequence[Job], state: dict[str, JobState]) -> list[PlannedJob]:
    """Return the lines of a plan."""
    return [
        PlannedJob(job.spec.method.name, job.spec.type, job.spec.seed, state[job.id], job.id, job.spec.base, job.trains)
        for job in plan
    ]


def lines_without_data(
    methods: Iterable[LoadedMethod], types: Sequence[FeatureType], seeds: int, missing: str
) -> list[PlannedJob]:
    """Return the lines of a plan whose data or weights are not here yet: blocked where the user has to bring them."""
    return [
        PlannedJob(
            method.name,
            feature_type,
            seed,
            "blocked" if missing else "train" if method.trains else "rescore",
            trains=method.trains,
        )
        for seed in range(seeds)
        for feature_type in types
        for method in methods
        if feature_type in method.cls.types
    ]


def count_model_parameters(
    recipe: Recipe, methods: Sequence[LoadedMethod], types: Sequence[FeatureType]
) -> dict[tuple[FeatureType, str], int]:
    """Return the number of parameters of each model, without methods that re-rank."""
    from hierbench.execution.parameters import count_parameters, stand_in_tree  # PyTorch, only for a dry run

    tree = stand_in_tree(recipe.expected.level_sizes)
    return {
        (feature_type, method.name): count_parameters(method, recipe, tree, feature_type)
        for feature_type in types
        for method in methods
        if feature_type in method.cls.types and method.trains
    }


def say_notes(prepared: Prepared) -> None:
    """Print the remarks on a dataset and its terms of use."""
    for note in (prepared.meta["remark"], prepared.meta.get("notice", "")):
        if note:
            say(f"note: {note}")


def summary(recipe: Recipe, lines: Sequence[PlannedJob], seconds: float | None, device: str, blocked: str) -> str:
    """Return the plan in one line."""
    counts = Counter(line.state for line in lines)
    jobs = counted(len(lines), "job")
    if blocked:
        text = f"{jobs}, all blocked: {blocked}"
    else:
        parts = [f"{counts['train']} to train", f"{counts['rescore']} to re-rank", f"{counts['cached']} cached"]
        text = f"{jobs}, {', '.join(parts)}" + f"; {counted(recipe.train.epochs, 'epoch')} each" * (counts["train"] > 0)
    if seconds and (blocked or counts["train"]):
        text += f"; {about(seconds)} on this machine ({device})"
    return f"{recipe.title}, protocol {recipe.protocol}: {text}"


def describe(extraction: Extraction, recipe: Recipe) -> str:
    """Return a cache of features in one line."""
    views = counted(recipe.model.views, "view")
    text = f"{extraction.pool}-pooled features of {recipe.model.backbone}: {extraction.images:,} images, "
    text += f"{views} in training, {megabytes(extraction.bytes)}, "
    if extraction.cached:
        return f"{text}cached"
    return f"{text}to extract" + ("" if extraction.seconds is None else f", {about(extraction.seconds)}")


def about(seconds: float) -> str:
    """Return an estimated duration for people."""
    return f"about {duration(seconds)}".replace("about under", "under")


def megabytes(num_bytes: float) -> str:
    """Return a size for people, e.g. "3.2 GB"."""
    if num_bytes < 1e5:
        return "under 0.1 MB"
    return f"{num_bytes / 1e6:,.1f} MB" if num_bytes < 1e9 else f"{num_bytes / 1e9:,.1f} GB"


def announce(session: Session, lines: Sequence[PlannedJob], models: Callable[[], Models], **more: Any) -> Table | None:
    """Set where a plan runs, and say how much it is; return the table of a dry run, which ends with it.

    Args:
        session: that has opened its inputs.
        lines: of the plan.
        models: counts the models' parameters, which a dry run shows.
        more: fields of the setting.
    """
    options, recipe, inputs = session.options, session.recipe, session.inputs
    session.setting = make_setting(options, sum(line.trains for line in lines), weights=inputs.weights, **more)
    kinds = [line.type for line in lines if line.state == "train" or (line.state == "blocked" and line.trains)]
    needed = estimate(recipe, kinds, inputs, session.setting, measure=options.dry_run)
    if options.dry_run or inputs.prepared is None:
        return dry_run_table(session, lines, needed, models())
    say_notes(inputs.prepared)
    say(summary(recipe, lines, None, options.device, ""))
    trained = [line.id for line in lines if line.state == "train" and line.id is not None]
    if resumed := sum((session.store.run(job_id).folder / "checkpoint.pt").exists() for job_id in trained):
        say(f"resumes {counted(resumed, 'job')} where it was stopped" if resumed == 1 else f"resumes {resumed} jobs")
    if kinds and not session.setting.in_process and options.executor == "local" and not options.plan_only:
        workers.start_server()  # it imports while this process goes on
    for extraction in needed.extractions:
        if not extraction.cached:
            say(describe(extraction, recipe))
    return None


def dry_run_table(session: Session, lines: Sequence[PlannedJob], needed: Estimate, models: Models) -> Table:
    """Return a line per row, with the parameters of its model and its time; the sum is above them."""
    recipe, inputs, device = session.recipe, session.inputs, session.options.device
    rows = []
    of_row: dict[tuple[str, FeatureType], list[PlannedJob]] = {}
    for line in lines:
        of_row.setdefault((line.method, line.type), []).append(line)
    for (method, feature_type), jobs in of_row.items():
        counts = Counter(job.state for job in jobs)
        state = ", ".join(f"{num} {STATE_WORDS[name]}" for name, num in counts.items())
        num_trained = sum(job.trains and job.state != "cached" for job in jobs)
        seconds = needed.per_job.get(feature_type, 0.0) * num_trained
        time = about(seconds) if seconds else ""
        parameters = Number(models.get((feature_type, method)), ",d")
        rows.append(tables.Line([Text(method), Text(feature_type), Text(state), parameters, Text(time)]))
    size = recipe.model.input_size or recipe.expected.image_size
    backbone = recipe.model.backbone + ", frozen" * recipe.model.frozen
    backbone += "" if size is None else f", {size[0]}x{size[1]} pixels"
    again = sorted({line.method for line in lines if not line.trains})
    num_bytes = disk_bytes(recipe, lines, needed, inputs.prepared is None)
    content = {
        "schema": 1,
        "dataset": recipe.dataset,
        "protocol": recipe.protocol,
        **({"blocked": inputs.missing} if inputs.missing else {}),
        **({"needed": inputs.needed} if inputs.needed else {}),
        "estimated_seconds": needed.seconds,
        "disk_bytes": num_bytes,
        "models": [
            {"type": type_, "method": name, "parameters": parameters, "seconds_per_job": needed.per_job.get(type_)}
            for (type_, name), parameters in models.items()
        ],
        **({"features": list(map(vars, needed.extractions))} if needed.extractions else {}),
        "jobs": [
            {key: getattr(line, key) for key in ("id", "method", "type", "seed", "state", "base")} for line in lines
        ],
    }
    memory = megabytes(WEIGHT_BYTES * max(models.values(), default=0))
    return Table(
        title=f"{recipe.title}, the plan",
        columns=["Method", "Type", "Jobs", "Parameters", "Time"],
        rows=rows,
        above=[summary(recipe, lines, needed.seconds, device, inputs.missing)],
        notes=[
            *([f"First: {inputs.needed}."] if inputs.needed else []),
            *(describe(extraction, recipe) for extraction in needed.extractions),
            f"Backbone: {backbone}.",
            *([f"{', '.join(again)}: nothing is trained, predictions are re-ranked."] if again else []),
            f"Sum: {counted(len(lines), 'run')}"
            + (f", {about(needed.seconds)} here" if needed.seconds else "")
            + f"; about {megabytes(num_bytes)} on disk for new data, features and predictions; a process maps its data "
            f"from disk, and has at most {memory} of weights, gradients and momentum.",
        ],
        content=content,
    )


def array_bytes(recipe: Recipe) -> int:
    """Return the bytes of a recipe's images, which jobs share, 0 for features."""
    size, expected = recipe.expected.image_size, recipe.expected
    num = sum(getattr(expected, split) for split in SPLITS)
    return 0 if size is None else 3 * size[0] * size[1] * num


def disk_bytes(recipe: Recipe, lines: Sequence[PlannedJob], needed: Estimate, prepares: bool) -> int:
    """Return the bytes that a plan writes: prepared images, caches of features, and predictions."""
    num_classes = recipe.expected.level_sizes[-1] if recipe.expected.level_sizes else 0
    new_runs = sum(line.state != "cached" for line in lines)
    features = sum(extraction.bytes for extraction in needed.extractions if not extraction.cached)
    return features + 4 * num_classes * recipe.expected.test * new_runs + prepares * array_bytes(recipe)


def commands_table(plan: Sequence[Job], state: Mapping[str, JobState], setting: Setting) -> Table:
    """Return the jobs with the command of each, training jobs first."""
    jobs = sorted(plan, key=lambda job: not job.trains)  # stable: otherwise in the order of the plan
    first = plan[0].spec
    content = {
        "schema": 1,
        "dataset": first.dataset.name,
        "protocol": first.protocol,
        "comparison": first.comparison,
        "jobs": [
            {
                "id": job.id,
                "label": job.spec.label,
                "method": job.spec.method.name,
                "type": job.spec.type,
                "seed": job.spec.seed,
                "state": state[job.id],
                "after": job.spec.base,
                "command": job_command(job, setting),
            }
            for job in jobs
        ],
    }
    rows = []
    for job in jobs:
        after = " ".join(base[:12] for base in job.spec.bases)
        words = [state[job.id], job.spec.label, after, shlex.join(job_command(job, setting))]
        rows.append(tables.Line(list(map(Text, words))))
    return Table("Commands of the jobs", ["State", "Job", "After", "Command"], rows, content=content)
