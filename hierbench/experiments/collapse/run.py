"""`hierbench collapse`: train with snapshots what has none, measure them, and publish curves, data and a summary."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch

from hierbench.api.registry import Found, find_method
from hierbench.config.options import Options
from hierbench.config.recipe import FEATURE_TYPES, FeatureType, Recipe, load_recipe
from hierbench.data.prepared import Prepared
from hierbench.experiments.collapse.curves import FRAMES, Curve, Frame, as_csv, as_json, summary_table
from hierbench.experiments.collapse.figure import draw
from hierbench.experiments.collapse.measure import measure_run, read_curve, to_measure
from hierbench.experiments.session import announce, make_setting, obtain, run_and_mirror, settle
from hierbench.models import build_backbone
from hierbench.planning.cost import Cost
from hierbench.planning.dry_run import Line, costs, lines_of_plan
from hierbench.planning.plan import check_request, make_plan
from hierbench.planning.resources import Setting
from hierbench.reports.plots.style import house_style, write_figure
from hierbench.runs.job import Job, State
from hierbench.runs.store import Store
from hierbench.training.snapshots import begin_again, default_every, differs, is_complete, place
from hierbench.utils.console import Meter, say
from hierbench.utils.errors import UserError
from hierbench.utils.files import write_text


@dataclass(frozen=True)
class Planned:
    """What is to be trained and measured.

    Attributes:
        recipe: as loaded.
        prepared: the dataset.
        jobs: [(frame, job)], seeds outermost.
        every: how many epochs lie between snapshots.
        setting: where and on what the jobs run; it says which of them lie apart.
    """

    recipe: Recipe
    prepared: Prepared
    jobs: list[tuple[Frame, Job]]
    every: int
    setting: Setting


def collapse(options: Options, every: int | None) -> int:
    """Run the command and return its exit code: 0, or 1 where a job failed."""
    recipe = load_recipe(options.dataset, options.overrides, options.protocol)
    seeds = options.count_seeds(recipe)
    every = every or default_every(recipe.train.epochs)
    with redirect_stdout(sys.stderr):
        methods = {frame: find_method(frame.method) for frame in FRAMES}
    check_request(recipe, list(methods.values()), FEATURE_TYPES)
    recipe, options = settle(recipe, options)
    inputs = obtain(recipe, options)
    if inputs.prepared is None:
        recipes = recipes_of(recipe, recipe.expected.level_sizes[-1])
        lines = [Line(frame.method, frame.type, seed, "blocked") for seed in range(seeds) for frame in FRAMES]
        setting = make_setting(options, len(lines))
        announce(recipe, lines, inputs, setting, options, partial(_costs, recipes, methods))
        return 0
    prepared = inputs.prepared
    check_classes(prepared)
    recipes = recipes_of(recipe, prepared.hierarchy(recipe.distance).num_classes)
    plans = [
        make_plan(recipes[frame], prepared, [methods[frame]], [frame.type], seeds, inputs.digest) for frame in FRAMES
    ]
    jobs = [(frame, job) for of_seed in zip(*plans, strict=True) for frame, job in zip(FRAMES, of_seed, strict=True)]
    plan = [job for _, job in jobs]
    widened = frozenset(job.id for frame, job in jobs if recipes[frame] is not recipe)
    store = place(plan, Store(options.runs.resolve()), every, widened)
    state: dict[str, State] = {
        job.id: "cached" if is_complete(store.run(job.id), every, recipe.train.epochs) else "train" for job in plan
    }
    setting = make_setting(options, len(plan), weights=inputs.weights, snapshots=every, apart=store.apart)
    announce(recipe, lines_of_plan(plan, state), inputs, setting, options, partial(_costs, recipes, methods))
    if options.dry_run:
        return 0
    planned = Planned(recipe, prepared, jobs, every, setting)
    again = sum(state[job.id] == "train" and job.id in store.apart - widened for job in plan)
    for note in notes(planned, recipes, again, options.runs):
        say(note)
    return carry_out(planned, options)


def recipes_of(recipe: Recipe, num_classes: int) -> dict[Frame, Recipe]:
    """Return each frame's recipe: for an ETF, type I has at least K features, as in the caption of the paper's figure.

    Where it has fewer, its layer gets K units.
    """
    width = recipe.model.type_i_units
    if not width:
        with torch.device("meta"):  # the number of channels alone is wanted
            width = build_backbone(recipe.model.backbone).num_channels
    wide = recipe.model_copy(update={"model": recipe.model.model_copy(update={"type_i_units": num_classes})})
    return {frame: wide if frame.type == "type-I" and width < num_classes else recipe for frame in FRAMES}


def check_classes(prepared: Prepared) -> None:
    """Raise a UserError where a class has no training image, so that its features have no mean."""
    num_classes = prepared.hierarchy("height").num_classes
    missing = num_classes - len(np.unique(prepared.arrays("train")[1]))
    if missing:
        raise UserError(f"{missing} of {num_classes} classes have no training image, so their features have no mean")


def carry_out(planned: Planned, options: Options) -> int:
    """Train what is missing, measure, publish, and return the exit code."""
    plan, store = [job for _, job in planned.jobs], planned.setting.store
    labels = {job.id: job.spec.label for job in plan}
    begin_again(plan, store, planned.every)

    def finish() -> tuple[list[Curve], Path]:
        curves = measured_curves(planned)
        return curves, publish(planned, curves, options.runs)

    with redirect_stdout(sys.stderr):  # a method may print; results alone go to standard output
        curves, failed = run_and_mirror(plan, planned.setting, options, "collapse", labels, finish)
    print(summary_table(planned.recipe, curves), end="", flush=True)
    for job in plan:
        if differs(job, store):
            say(
                f"note: {labels[job.id]}, trained again for its snapshots, ended in other numbers than before; "
                "the curves are of the second training"
            )
    if curves:
        say(f"\nfigure and data: {options.runs}/collapse-{planned.recipe.dataset}.png, .svg, .csv and .json")
    for job_id, error in failed.items():
        say(f"failed: {labels[job_id]}: {error} ({store.run(job_id).folder}/status.json)")
    return 1 if failed else 0


def measured_curves(planned: Planned) -> list[Curve]:
    """Measure the snapshots of every finished run that are not measured yet, and return all curves."""
    setting, every = planned.setting, planned.every
    finished = [(frame, job, setting.store.run(job.id)) for frame, job in planned.jobs]
    finished = [(frame, job, run) for frame, job, run in finished if run.done]
    todo = {job.id: to_measure(job, run, every) for _, job, run in finished}
    if total := sum(map(len, todo.values())):
        from hierbench.data.loader import Split

        split = Split(planned.prepared, "train", finished[0][1].spec, torch.device(setting.device))
        hierarchy = planned.prepared.hierarchy(planned.recipe.distance)
        before = torch.get_num_threads()
        torch.set_num_threads(setting.workers * setting.threads if setting.threads else before)
        try:
            with Meter(f"measuring {total} snapshots", float(total)) as meter:
                for frame, job, run in finished:
                    measure_run(job, run, frame, hierarchy, split, todo[job.id], meter)
        finally:
            torch.set_num_threads(before)
    return [read_curve(job, run, frame, every, planned.recipe.collapse) for frame, job, run in finished]


def publish(planned: Planned, curves: list[Curve], folder: Path) -> Path:
    """Write figure and data of the curves; return the figure, or the data where there is nothing to draw."""
    recipe = planned.recipe
    data = folder / f"collapse-{recipe.dataset}.json"
    write_text(data, as_json(recipe, curves, planned.every))
    write_text(data.with_suffix(".csv"), as_csv(recipe, curves))
    if not curves:
        return data
    with house_style():
        figure = draw(recipe, curves)
        for suffix in (".svg", ".png"):
            write_figure(figure, data.with_suffix(suffix))
    return data.with_suffix(".png")


def _costs(recipes: Mapping[Frame, Recipe], methods: Mapping[Frame, Found]) -> dict[tuple[FeatureType, str], Cost]:
    return {
        key: cost
        for frame in reversed(FRAMES)
        for key, cost in costs(recipes[frame], [methods[frame]], [frame.type]).items()
    }


def notes(planned: Planned, recipes: Mapping[Frame, Recipe], again: int, runs: Path) -> list[str]:
    """Return what is odd about the jobs: a wider type I, and how many are trained a second time."""
    lines = [
        f"note: {frame.type} has {own.model.type_i_units} units here, one per class as an ETF needs; its runs lie in "
        f"{runs}/collapse, apart from those of the tables"
        for frame, own in recipes.items()
        if own is not planned.recipe
    ]
    if again:
        lines.append(
            f"note: {again} of these have a run without snapshots; it stays, they are trained again in {runs}/collapse"
        )
    return lines
