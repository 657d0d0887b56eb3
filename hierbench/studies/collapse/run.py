"""`hierbench collapse`: train jobs that lack snapshots, measure them, and publish curves, data and a summary."""

import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from hierbench.api.registry import find_method
from hierbench.config.options import Options
from hierbench.config.recipe import Recipe
from hierbench.config.sections import FeatureType
from hierbench.data.loader import Split
from hierbench.execution.announce import announce
from hierbench.execution.dry_run import Line, lines_of_plan, parameters_of
from hierbench.execution.plan import make_plan
from hierbench.execution.session import Session
from hierbench.execution.train_job import features_without_crops
from hierbench.figures.plots.style import house_style, write_figure
from hierbench.leaderboard.table import Shown
from hierbench.models.libraries.lookup import cached_backbone
from hierbench.runs.job import Job, State
from hierbench.runs.mlflow_mirror import Mirror, default_uri
from hierbench.runs.reading import read_record
from hierbench.runs.requests import asked_options, record_request
from hierbench.studies.collapse.curves import FRAMES, Curve, Frame, as_csv, as_json, summary_table
from hierbench.studies.collapse.figure import draw
from hierbench.studies.collapse.measure import measure_run, read_curve, to_measure
from hierbench.training.snapshots import default_every, is_complete, restart
from hierbench.utils.console import Meter, say
from hierbench.utils.errors import UserError
from hierbench.utils.files import refuse_links, write_text

FOLDER = "collapse"  # of its runs, in the runs folder


def collapse(options: Options, every: int | None) -> Shown:
    """Run the command and return its summary; the exit code is 0, or 1 where a job failed.

    Its runs have a folder of their own, `<runs>/collapse`: they keep snapshots, and belong in no table.
    """
    session = Session(replace(options, runs=refuse_links(options.runs, FOLDER)))
    every = every or default_every(session.recipe.train.epochs)
    with redirect_stdout(sys.stderr):
        methods = {frame: find_method(frame.method) for frame in FRAMES}
    inputs, seeds = session.open(list(methods.values())), range(session.num_seeds)
    recipe, prepared = session.recipe, inputs.prepared
    num_classes = recipe.expected.level_sizes[-1] if prepared is None else prepared.hierarchy("height").num_classes
    recipes = recipes_of(recipe, num_classes)

    def models() -> dict[tuple[FeatureType, str], int]:
        etf_first = reversed(FRAMES)
        return {k: v for f in etf_first for k, v in parameters_of(recipes[f], [methods[f]], [f.type]).items()}

    if prepared is None:
        lines = [Line(frame.method, frame.type, seed, "blocked") for seed in seeds for frame in FRAMES]
        announce(session, lines, models)
        return Shown(None)
    if missing := num_classes - len(np.unique(prepared.arrays("train")[1])):
        raise UserError(f"{missing} of {num_classes} classes have no training image, so their features have no mean")
    plans = [
        make_plan(recipes[frame], prepared, [methods[frame]], [frame.type], len(seeds), inputs.digest)
        for frame in FRAMES
    ]
    jobs = [(frame, job) for of_seed in zip(*plans, strict=True) for frame, job in zip(FRAMES, of_seed, strict=True)]
    plan = [job for _, job in jobs]
    store = session.store
    state: dict[str, State] = {
        job.id: "cached" if is_complete(store.run(job.id), every, recipe.train.epochs) else "train" for job in plan
    }
    lines = lines_of_plan(plan, state)
    if not announce(session, lines, models, snapshots=every):
        return Shown(None)
    asked = asked_options(session.options, session.num_seeds, every=every)
    record_request(store.root, "collapse", recipe.dataset, asked, [job.id for job in plan])
    for frame, own in recipes.items():
        if own is not recipe:
            say(f"note: {frame.type} has {own.model.type_i_units} units here, one per class as an ETF needs")
    session.options = replace(session.options, mlflow=options.mlflow or default_uri(options.runs))
    return carry_out(session, jobs)


def recipes_of(recipe: Recipe, num_classes: int) -> dict[Frame, Recipe]:
    """Return each frame's recipe: for an ETF, type I has at least K features, as in the caption of the paper's figure.

    Where it has fewer, its layer gets K units.
    """
    width = recipe.model.type_i_units or cached_backbone(recipe.model).num_channels
    wide = recipe.model_copy(update={"model": recipe.model.model_copy(update={"type_i_units": num_classes})})
    return {frame: wide if frame.type == "type-I" and width < num_classes else recipe for frame in FRAMES}


def carry_out(session: Session, jobs: Sequence[tuple[Frame, Job]]) -> Shown:
    """Train what is missing, measure, publish, and return the summary; seeds are outermost in `jobs`."""
    plan, setting, recipe = [job for _, job in jobs], session.setting, session.recipe
    runs = session.options.runs.parent
    labels = {job.id: job.spec.label for job in plan}
    restart(plan, setting.store, setting.snapshots)

    def finish(mirror: Mirror) -> list[Curve]:
        curves = measured_curves(session, jobs)
        mirror.attach(publish(recipe, curves, setting.snapshots, runs))
        return curves

    curves, failures = session.carry_out(plan, "collapse", labels, finish)
    said = [f"\nfigure and data: {runs}/collapse-{recipe.dataset}.png, .svg, .csv and .json"] if curves else []
    table = summary_table(recipe, curves) if curves else None
    return Shown(table, [*said, *failures], 1 if failures else 0)


def measured_curves(session: Session, jobs: Sequence[tuple[Frame, Job]]) -> list[Curve]:
    """Measure the snapshots of every finished run that are not measured yet, and return all curves."""
    setting, recipe, prepared = session.setting, session.recipe, session.inputs.prepared
    assert prepared is not None
    finished = [(frame, job, run) for frame, job in jobs if read_record((run := setting.store.run(job.id)).folder).done]
    todo = {job.id: to_measure(job, run, setting.snapshots) for _, job, run in finished}
    if total := sum(map(len, todo.values())):
        frozen, device = recipe.model.frozen, torch.device(setting.device)
        images = None if frozen else Split(prepared, "train", finished[0][1].spec, device)
        hierarchy = prepared.hierarchy(recipe.distance)
        before = torch.get_num_threads()
        torch.set_num_threads(setting.workers * setting.threads if setting.threads else before)
        try:
            with Meter(f"measuring {total} snapshots", float(total)) as meter:
                for frame, job, run in finished:
                    split = images or features_without_crops(job, prepared, setting)
                    measure_run(job, run, frame, hierarchy, split, todo[job.id], meter)
        finally:
            torch.set_num_threads(before)
    return [read_curve(job, run, frame, setting.snapshots, recipe.collapse) for frame, job, run in finished]


def publish(recipe: Recipe, curves: list[Curve], every: int, folder: Path) -> Path:
    """Write figure and data of the curves; return the figure, or the data where there is nothing to draw."""
    data = folder / f"collapse-{recipe.dataset}.json"
    write_text(data, as_json(recipe, curves, every))
    write_text(data.with_suffix(".csv"), as_csv(recipe, curves))
    if not curves:
        return data
    with house_style():
        figure = draw(recipe, curves)
        for suffix in (".svg", ".png"):
            write_figure(figure, data.with_suffix(suffix))
    return data.with_suffix(".png")
