"""A plan before it runs: a line, the table of a dry run with parameters and time, or that of its commands."""

import shlex
from collections import Counter
from typing import Any

from hierbench.config.recipe import Recipe
from hierbench.config.sections import FeatureType
from hierbench.data.prepared import Prepared
from hierbench.data.writer import SPLITS
from hierbench.execution import workers
from hierbench.execution.estimate import Estimate, Extraction, estimate
from hierbench.execution.plan import Plan, PlannedJob
from hierbench.execution.single_job import job_command
from hierbench.leaderboard import table as tables
from hierbench.leaderboard.table import Number, Table, Text
from hierbench.utils.console import duration, say
from hierbench.utils.text import counted

STATE_WORDS = {"train": "to train", "rescore": "to re-rank", "cached": "cached", "blocked": "blocked"}
WEIGHT_BYTES = 12  # of a parameter in training: itself, its gradient and its momentum in single precision


def count_model_parameters(plan: Plan) -> dict[tuple[FeatureType, str], int]:
    """Return the number of parameters of each network that a plan trains, by type and method."""
    from hierbench.execution.parameters import count_parameters, stand_in_tree  # PyTorch, only for a dry run

    tree = stand_in_tree(plan.request.recipe.expected.level_sizes)
    return {
        (feature_type, method.name): count_parameters(method, recipe, tree, feature_type)
        for recipe, method, feature_type in plan.networks
        if method.trains
    }


def say_notes(prepared: Prepared) -> None:
    """Print the remarks on a dataset and its terms of use."""
    for note in (prepared.meta["remark"], prepared.meta.get("notice", "")):
        if note:
            say(f"note: {note}")


def summary(plan: Plan, seconds: float | None = None) -> str:
    """Return a plan in one line."""
    recipe = plan.request.recipe
    blocked = plan.request.missing.to_bring
    counts = Counter(line.state for line in plan.planned)
    jobs = counted(len(plan.planned), "job")
    if blocked:
        text = f"{jobs}, all blocked: {blocked}"
    else:
        parts = [f"{counts['train']} to train", f"{counts['rescore']} to re-rank", f"{counts['cached']} cached"]
        text = f"{jobs}, {', '.join(parts)}" + f"; {recipe.train.length} each" * (counts["train"] > 0)
    if seconds and (blocked or counts["train"]):
        text += f"; {about(seconds)} on this machine ({plan.setting.device})"
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


def announce(plan: Plan) -> None:
    """Say how much a plan is to do, and start the processes that train, which takes a moment."""
    request = plan.request
    if request.prepared is not None:
        say_notes(request.prepared)
    say(summary(plan))
    trained = [line.job for line in plan.planned if line.state == "train" and line.job is not None]
    resumed = sum((request.store.run(job.id).folder / "checkpoint.pt").exists() for job in trained)
    if resumed:
        say(f"resumes {counted(resumed, 'job')} where it was stopped" if resumed == 1 else f"resumes {resumed} jobs")
    options = request.options
    if trained and not plan.setting.in_process and not options.plan_only:
        workers.start_server()  # it imports while this process goes on
    kinds = [job.spec.type for job in trained]
    for extraction in estimate(request.recipe, kinds, request.inputs, plan.setting, measure=False).extractions:
        if not extraction.cached:
            say(describe(extraction, request.recipe))
    for line in plan.notes:
        say(line)


def dry_run_table(plan: Plan) -> Table:
    """Return a line per row, with the parameters of its model and its time; the sum is above them."""
    recipe = plan.request.recipe
    missing = plan.request.missing
    kinds = [line.type for line in plan.planned if line.state == "train" or (line.state == "blocked" and line.trains)]
    needed = estimate(recipe, kinds, plan.request.inputs, plan.setting)
    models = count_model_parameters(plan)
    rows = []
    jobs_by_row: dict[tuple[str, FeatureType], list[PlannedJob]] = {}
    for line in plan.planned:
        jobs_by_row.setdefault((line.row, line.type), []).append(line)
    for (method, feature_type), jobs in jobs_by_row.items():
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
    again = sorted({line.row for line in plan.planned if not line.trains})
    num_bytes = disk_bytes(plan, needed)
    content = {
        "schema": 1,
        "dataset": recipe.dataset,
        "protocol": recipe.protocol,
        **({"blocked": missing.to_bring} if missing.to_bring else {}),
        **({"needed": missing.made_first} if missing.made_first else {}),
        "estimated_seconds": needed.seconds,
        "disk_bytes": num_bytes,
        "models": [
            {"type": type_, "method": name, "parameters": parameters, "seconds_per_job": needed.per_job.get(type_)}
            for (type_, name), parameters in models.items()
        ],
        **({"features": list(map(vars, needed.extractions))} if needed.extractions else {}),
        "jobs": [_job_content(line) for line in plan.planned],
    }
    memory = megabytes(WEIGHT_BYTES * max(models.values(), default=0))
    return Table(
        title=f"{recipe.title}, the plan",
        columns=["Method", "Type", "Jobs", "Parameters", "Time"],
        rows=rows,
        above=[summary(plan, needed.seconds)],
        notes=[
            *([f"First: {missing.made_first}."] if missing.made_first else []),
            *(describe(extraction, recipe) for extraction in needed.extractions),
            *plan.notes,
            f"Backbone: {backbone}.",
            *([f"{', '.join(again)}: nothing is trained, predictions are re-ranked."] if again else []),
            f"Sum: {counted(len(plan.planned), 'run')}"
            + (f", {about(needed.seconds)} here" if needed.seconds else "")
            + f"; about {megabytes(num_bytes)} on disk for new data, features and predictions; a process maps its data "
            f"from disk, and has at most {memory} of weights, gradients and momentum.",
        ],
        content=content,
    )


def _job_content(line: PlannedJob) -> dict[str, Any]:
    """Return a planned job as JSON types; without data it has no id."""
    job = line.job
    return {
        "id": None if job is None else job.id,
        "method": line.row,
        "type": line.type,
        "seed": line.seed,
        "state": line.state,
        "base": None if job is None else job.spec.base,
    }


def array_bytes(recipe: Recipe) -> int:
    """Return the bytes of a recipe's images, which jobs share, 0 for features."""
    size = recipe.expected.image_size
    expected = recipe.expected
    num = sum(getattr(expected, split) for split in SPLITS)
    return 0 if size is None else 3 * size[0] * size[1] * num


def disk_bytes(plan: Plan, needed: Estimate) -> int:
    """Return the bytes that a plan writes: prepared images, caches of features, and predictions."""
    recipe = plan.request.recipe
    num_classes = recipe.expected.level_sizes[-1] if recipe.expected.level_sizes else 0
    new_runs = sum(line.state != "cached" for line in plan.planned)
    features = sum(extraction.bytes for extraction in needed.extractions if not extraction.cached)
    images = array_bytes(recipe) if plan.request.prepared is None else 0
    return features + 4 * num_classes * recipe.expected.test * new_runs + images


def commands_table(plan: Plan) -> Table:
    """Return the jobs with the command of each, training jobs first."""
    jobs = sorted(plan.jobs, key=lambda job: not job.trains)  # stable: otherwise in the order of the plan
    first = plan.jobs[0].spec
    states = plan.states
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
                "state": states[job.id],
                "after": job.spec.base,
                "command": job_command(job, plan.setting),
            }
            for job in jobs
        ],
    }
    rows = []
    for job in jobs:
        after = " ".join(base[:12] for base in job.spec.bases)
        words = [states[job.id], job.spec.label, after, shlex.join(job_command(job, plan.setting))]
        rows.append(tables.Line(list(map(Text, words))))
    return Table("Commands of the jobs", ["State", "Job", "After", "Command"], rows, content=content)
