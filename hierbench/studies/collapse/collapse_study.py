"""`hierbench collapse`: train jobs that lack snapshots, measure them, and publish curves, data and a summary."""

import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure

from hierbench.api.registry import LoadedMethod, find_method
from hierbench.config.options import Options
from hierbench.config.recipe import ResolvedRecipe
from hierbench.data.loader import Split
from hierbench.data.prepared import Prepared
from hierbench.execution.job_inputs import features_without_crops
from hierbench.execution.jobs import make_jobs
from hierbench.execution.plan import Plan, plan_jobs, plan_without_data
from hierbench.execution.request import ResolvedRequest, requested_recipe, resolve
from hierbench.execution.resources import make_setting
from hierbench.leaderboard.formats import render
from hierbench.leaderboard.pictures.style import house_style
from hierbench.leaderboard.table import CommandOutput
from hierbench.models.libraries.lookup import cached_backbone
from hierbench.runs.mlflow_mirror import default_uri
from hierbench.runs.record_reader import read_record
from hierbench.studies.collapse.collapse_curves import FRAMES, Curve, MeasuredFrame, curves_table
from hierbench.studies.collapse.figure import draw
from hierbench.studies.collapse.measure import measure_run, read_curve, to_measure
from hierbench.studies.study import StudyReport, carry_out
from hierbench.training.snapshots import default_every, is_complete
from hierbench.utils.console import Meter
from hierbench.utils.errors import UserError
from hierbench.utils.files import refuse_links

COLLAPSE_FOLDER = "collapse"  # of its runs, in the runs folder


def collapse(options: Options, every: int | None) -> CommandOutput:
    """Run the command and return its summary; the exit code is 0, or 1 where a job failed.

    Its runs have a folder of their own, `<runs>/collapse`: they keep snapshots, and belong in no table.
    """
    mlflow = options.mlflow or (None if options.dry_run else default_uri(options.runs))
    options = replace(options, runs=refuse_links(options.runs, COLLAPSE_FOLDER), mlflow=mlflow)
    recipe = requested_recipe(options)
    with redirect_stdout(sys.stderr):
        methods = {frame: find_method(frame.method) for frame in FRAMES}
    request = resolve(options, recipe, list(methods.values()))
    num_classes = request.recipe.expected.level_sizes[-1]
    if request.prepared is not None:
        num_classes = request.prepared.hierarchy("height").num_classes
        _check_classes(request.prepared, num_classes)
    recipes = frame_recipes(request.recipe, num_classes)
    plan = plan_collapse(request, methods, recipes, every or default_every(recipe.train.rounds))
    return carry_out(plan, collapse_report).shown


def _check_classes(prepared: Prepared, num_classes: int) -> None:
    """Raise a UserError if a class has no training image."""
    missing = num_classes - len(np.unique(prepared.arrays("train")[1]))
    if missing:
        raise UserError(f"{missing} of {num_classes} classes have no training image, so their features have no mean")


def plan_collapse(
    request: ResolvedRequest,
    methods: Mapping[MeasuredFrame, LoadedMethod],
    recipes: Mapping[MeasuredFrame, ResolvedRecipe],
    every: int,
) -> Plan:
    """Return the plan of HAFrame and cross-entropy with a model kept every few epochs, seeds outermost.

    A job without its snapshots is trained again.
    """
    options = request.options
    epochs = request.recipe.train.rounds
    if request.prepared is None:
        rows = [(frame.method, frame.type, True) for frame in FRAMES]
        planned = plan_without_data(rows, request.num_seeds, request.missing.to_bring)
    else:
        jobs_by_frame = [
            make_jobs(
                recipes[frame],
                request.prepared,
                [methods[frame]],
                [frame.type],
                request.num_seeds,
                request.weights_digest,
            )
            for frame in FRAMES
        ]
        jobs = [job for same_seed in zip(*jobs_by_frame, strict=True) for job in same_seed]
        is_cached = {job.id: is_complete(request.store.run(job.id), every, epochs) for job in jobs}
        planned = plan_jobs(jobs, {run_id: "cached" if cached else "train" for run_id, cached in is_cached.items()})
    return Plan(
        request,
        planned,
        make_setting(options, len(planned), weights=request.weights, snapshots=every),
        title="collapse",
        kind="collapse",
        options={"every": every},
        recorded_ids=[line.job.id for line in planned if line.job is not None],
        networks=[(recipes[frame], methods[frame], frame.type) for frame in reversed(FRAMES)],  # ETF first
        notes=[
            f"note: {frame.type} has {recipe.model.type_i_units} units here, one per class as an ETF needs"
            for frame, recipe in recipes.items()
            if recipe is not request.recipe
        ],
    )


def collapse_report(plan: Plan) -> StudyReport:
    """Measure the snapshots, and return the summary with figure and data."""
    recipe = plan.request.recipe
    curves = measured_curves(plan)
    table = curves_table(recipe, curves, plan.setting.snapshots)
    data = plan.request.options.runs.parent / f"collapse-{recipe.dataset}.json"
    files: dict[Path, str | Figure] = {data: render(table, "json"), data.with_suffix(".csv"): render(table, "csv")}
    if not curves:
        return StudyReport(None, files, attached=data)
    with house_style():
        figure = draw(recipe, curves)
    files |= {data.with_suffix(suffix): figure for suffix in (".svg", ".png")}
    place = data.with_suffix("")
    lines = [f"\nfigure and data: {place}.png, .svg, .csv and .json"]
    return StudyReport(table, files, lines, attached=data.with_suffix(".png"))


def frame_recipes(recipe: ResolvedRecipe, num_classes: int) -> dict[MeasuredFrame, ResolvedRecipe]:
    """Return each frame's recipe: for an ETF, type I has at least K features, as in the caption of the paper's figure.

    Where it has fewer, its layer gets K units.
    """
    width = recipe.model.type_i_units or cached_backbone(recipe.model).num_channels
    wide = recipe.model_copy(update={"model": recipe.model.model_copy(update={"type_i_units": num_classes})})
    return {frame: wide if frame.type == "type-I" and width < num_classes else recipe for frame in FRAMES}


def measured_curves(plan: Plan) -> list[Curve]:
    """Measure the snapshots of every finished run that are not measured yet, and return all curves."""
    setting = plan.setting
    request = plan.request
    frame_by_row = {(frame.method, frame.type): frame for frame in FRAMES}
    finished = [
        (frame_by_row[line.row, line.type], line.job, setting.store.run(line.job.id))
        for line in plan.planned
        if line.job is not None and read_record(setting.store.run(line.job.id).folder).done
    ]
    todo = {job.id: to_measure(job, run, setting.snapshots) for _, job, run in finished}
    total = sum(map(len, todo.values()))
    if total and request.prepared is not None:
        device = torch.device(setting.device)
        images = None if request.recipe.model.frozen else Split(request.prepared, "train", finished[0][1].spec, device)
        hierarchy = request.prepared.hierarchy(request.recipe.distance)
        before = torch.get_num_threads()
        torch.set_num_threads(setting.workers * setting.threads if setting.threads else before)
        try:
            with Meter(f"measuring {total} snapshots", float(total)) as meter:
                for frame, job, run in finished:
                    split = images or features_without_crops(job, request.prepared, setting)
                    measure_run(job, run, frame, hierarchy, split, todo[job.id], meter)
        finally:
            torch.set_num_threads(before)
    return [read_curve(job, run, frame, setting.snapshots, request.recipe.collapse) for frame, job, run in finished]
