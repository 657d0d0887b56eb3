"""`hierbench collapse`: train jobs that lack snapshots, measure them, and publish curves, data and a summary."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from hierbench.api.registry import find_method
from hierbench.config.options import Options
from hierbench.config.recipe import Recipe
from hierbench.config.sections import FeatureType
from hierbench.data.loader import Split
from hierbench.execution.job_inputs import features_without_crops
from hierbench.execution.plan import make_plan
from hierbench.execution.session import Execution, Session
from hierbench.figures.plots.style import house_style, write_figure
from hierbench.leaderboard.formats import render
from hierbench.leaderboard.table import Shown, Table
from hierbench.models.libraries.lookup import cached_backbone
from hierbench.runs.job import Job, JobState
from hierbench.runs.mlflow_mirror import Mirror, default_uri
from hierbench.runs.record_reader import read_record
from hierbench.studies.collapse.collapse_curves import FRAMES, Curve, Frame, curves_table
from hierbench.studies.collapse.figure import draw
from hierbench.studies.collapse.measure import measure_run, read_curve, to_measure
from hierbench.studies.dry_run import PlannedJob, announce, count_model_parameters, lines_of_plan
from hierbench.studies.study import Study, carry_out
from hierbench.training.snapshots import default_every, is_complete, restart
from hierbench.utils.console import Meter, say
from hierbench.utils.errors import UserError
from hierbench.utils.files import refuse_links, write_text

FOLDER = "collapse"  # of its runs, in the runs folder


def collapse(options: Options, every: int | None) -> Shown:
    """Run the command and return its summary; the exit code is 0, or 1 where a job failed.

    Its runs have a folder of their own, `<runs>/collapse`: they keep snapshots, and belong in no table.
    """
    mlflow = options.mlflow or (None if options.dry_run else default_uri(options.runs))
    return carry_out(CollapseStudy(every), replace(options, runs=refuse_links(options.runs, FOLDER), mlflow=mlflow))


class CollapseStudy(Study):
    """HAFrame and cross-entropy, with a model kept every few epochs."""

    kind = "collapse"

    def __init__(self, every: int | None) -> None:
        self.every, self.snapshots, self.curves = every, 0, list[Curve]()

    def open(self, session: Session) -> None:
        """Find both methods, and widen type I where an ETF needs it."""
        self.snapshots = self.every or default_every(session.recipe.train.epochs)
        with redirect_stdout(sys.stderr):
            self.methods = {frame: find_method(frame.method) for frame in FRAMES}
        prepared = session.open(list(self.methods.values())).prepared
        num_classes = session.recipe.expected.level_sizes[-1]
        if prepared is not None:
            num_classes = prepared.hierarchy("height").num_classes
            if missing := num_classes - len(np.unique(prepared.arrays("train")[1])):
                raise UserError(
                    f"{missing} of {num_classes} classes have no training image, so their features have no mean"
                )
        self.recipes = frame_recipes(session.recipe, num_classes)

    def plan(self, session: Session) -> list[Job]:
        """Return the jobs, seeds outermost."""
        inputs = session.inputs
        assert inputs.prepared is not None
        plans = [
            make_plan(
                self.recipes[frame],
                inputs.prepared,
                [self.methods[frame]],
                [frame.type],
                session.num_seeds,
                inputs.digest,
            )
            for frame in FRAMES
        ]
        of_seeds = zip(*plans, strict=True)
        self.jobs = [(frame, job) for jobs in of_seeds for frame, job in zip(FRAMES, jobs, strict=True)]
        return [job for _, job in self.jobs]

    def states(self, session: Session, plan: Sequence[Job]) -> dict[str, JobState]:
        """Return the state of each job before it runs: one without its snapshots is trained again."""
        runs = {job.id: session.store.run(job.id) for job in plan}
        epochs = session.recipe.train.epochs
        return {id_: "cached" if is_complete(run, self.snapshots, epochs) else "train" for id_, run in runs.items()}

    def announce(self, session: Session, plan: Sequence[Job], state: dict[str, JobState]) -> Table | None:
        """Report a line per job."""
        seeds = range(session.num_seeds)
        lines = [
            PlannedJob(frame.method, frame.type, seed, "blocked" if session.inputs.missing else "train")
            for seed in seeds
            for frame in FRAMES
        ]
        return announce(session, lines_of_plan(plan, state) if plan else lines, self._models, snapshots=self.snapshots)

    def _models(self) -> dict[tuple[FeatureType, str], int]:
        """Count the parameters of both models."""
        counts = dict[tuple[FeatureType, str], int]()
        for frame in reversed(FRAMES):  # ETF first
            counts |= count_model_parameters(self.recipes[frame], [self.methods[frame]], [frame.type])
        return counts

    def title(self, session: Session) -> str:
        """Return "collapse"."""
        return "collapse"

    def request_details(
        self, session: Session, plan: Sequence[Job]
    ) -> tuple[Mapping[str, Any], Sequence[str], Mapping[str, Any]]:
        """Return the number of epochs between snapshots, and the jobs."""
        return {"every": self.snapshots}, [job.id for job in plan], {}

    def steps(self, session: Session, plan: list[Job], execution: Execution) -> Iterator[list[Job]]:
        """Report widened layers, start runs over that lack snapshots, and yield the plan."""
        for frame, recipe in self.recipes.items():
            if recipe is not session.recipe:
                say(f"note: {frame.type} has {recipe.model.type_i_units} units here, one per class as an ETF needs")
        restart(plan, session.store, self.snapshots)
        yield from super().steps(session, plan, execution)

    def table(self, session: Session, mirror: Mirror | None) -> Table | None:
        """Measure the snapshots, write figure and data, and return the summary."""
        self.curves = measured_curves(session, self.jobs)
        table = curves_table(session.recipe, self.curves, self.snapshots)
        data = session.options.runs.parent / f"collapse-{session.recipe.dataset}.json"
        write_text(data, render(table, "json"))
        write_text(data.with_suffix(".csv"), render(table, "csv"))
        if self.curves:
            with house_style():
                figure = draw(session.recipe, self.curves)
            for suffix in (".svg", ".png"):
                write_figure(figure, data.with_suffix(suffix))
        if mirror is not None:
            mirror.attach(data.with_suffix(".png") if self.curves else data)
        return table if self.curves else None

    def closing_lines(self, session: Session) -> list[str]:
        """Return where figure and data are."""
        place = f"{session.options.runs.parent}/collapse-{session.recipe.dataset}"
        return [f"\nfigure and data: {place}.png, .svg, .csv and .json"] if self.curves else []


def frame_recipes(recipe: Recipe, num_classes: int) -> dict[Frame, Recipe]:
    """Return each frame's recipe: for an ETF, type I has at least K features, as in the caption of the paper's figure.

    Where it has fewer, its layer gets K units.
    """
    width = recipe.model.type_i_units or cached_backbone(recipe.model).num_channels
    wide = recipe.model_copy(update={"model": recipe.model.model_copy(update={"type_i_units": num_classes})})
    return {frame: wide if frame.type == "type-I" and width < num_classes else recipe for frame in FRAMES}


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
