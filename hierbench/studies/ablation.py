"""`hierbench ablate`: the four variants of the paper's ablation, trained where missing, and their table."""

import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from functools import partial
from typing import Any

from hierbench.api.registry import LoadedMethod, find_method
from hierbench.config.options import Options
from hierbench.config.recipe import Recipe
from hierbench.data.prepared import Prepared
from hierbench.execution.plan import make_plan, with_params
from hierbench.execution.session import Session
from hierbench.leaderboard.ablation_table import FRAME_ALONE, VARIANTS, ablation_board, ablation_table
from hierbench.leaderboard.board import Board
from hierbench.leaderboard.formats import render
from hierbench.leaderboard.open_board import requested_records
from hierbench.leaderboard.table import Shown, Table
from hierbench.runs.job import Job, JobState
from hierbench.runs.mlflow_mirror import Mirror
from hierbench.studies.comparison import AGAIN
from hierbench.studies.dry_run import PlannedJob, announce, count_model_parameters, lines_of_plan
from hierbench.studies.study import Study, carry_out
from hierbench.utils.errors import UserError
from hierbench.utils.files import write_text


def ablate(options: Options) -> Shown:
    """Run the missing jobs and return the table; the exit code is 0, or 1 where a job failed."""
    return carry_out(Ablation(), options)


class Ablation(Study):
    """The variants of HAFrame's two losses and its frame."""

    kind = "ablation"

    def open(self, session: Session) -> None:
        """Find the variants' methods."""
        self.methods = _methods(session)
        session.open(self.methods)

    def plan(self, session: Session) -> list[Job]:
        """Return the jobs of all variants, seeds outermost: all rows fill evenly."""
        inputs = session.inputs
        assert inputs.prepared is not None
        self.variants = plan_variants(session.recipe, inputs.prepared, self.methods, session.num_seeds, inputs.digest)
        named = zip(VARIANTS, self.variants, strict=True)
        self.names = {job.id: variant.name for variant, jobs in named for job in jobs}
        return [job for jobs in zip(*self.variants, strict=True) for job in jobs]

    def announce(self, session: Session, plan: Sequence[Job], state: dict[str, JobState]) -> Table | None:
        """Report a line per job, with the variant's name."""
        seeds = range(session.num_seeds)
        lines = [
            PlannedJob(variant.name, variant.type, seed, "blocked" if session.inputs.missing else "train")
            for seed in seeds
            for variant in VARIANTS
        ]
        if plan:
            lines = [replace(line, method=self.names[line.id or ""]) for line in lines_of_plan(plan, state)]
        return announce(session, lines, partial(count_model_parameters, session.recipe, self.methods, session.types))

    def title(self, session: Session) -> str:
        """Return "ablation"."""
        return "ablation"

    def label(self, job: Job) -> str:
        """Return the variant of a job, its type and seed."""
        return f"{self.names[job.id]} {job.spec.type} seed {job.spec.seed}"

    def request_details(
        self, session: Session, plan: Sequence[Job]
    ) -> tuple[Mapping[str, Any], Sequence[str], Mapping[str, Any]]:
        """Return the jobs of the frame alone, which is no row of a comparison, as all others are."""
        return {}, [job.id for job in self.variants[VARIANTS.index(FRAME_ALONE)]], {}

    def table(self, session: Session, mirror: Mirror | None) -> Table:
        """Return and write the paper's table of the ablation."""
        recipe, runs = session.recipe, session.options.runs
        ids = [[job.id for job in jobs] for jobs in self.variants]
        every = [job_id for group in ids for job_id in group]
        board = Board.of(session.options.dataset, requested_records(runs, every, AGAIN), every)
        table = ablation_table([(recipe.title, ablation_board(board, recipe.model.backbone, ids))])
        if mirror is not None:
            file = runs / f"ablation-{recipe.dataset}.md"
            write_text(file.with_suffix(".json"), render(table, "json"))
            write_text(file, render(table))
            mirror.attach(file)
        return table

    def closing_lines(self, session: Session) -> list[str]:
        """Return where the tables are."""
        runs = session.options.runs
        return [f"\ntables: {runs}/ablation-{session.recipe.dataset}.md and .json; runs: {runs}/<id>/"]


def _methods(session: Session) -> list[LoadedMethod]:
    """Return the methods of the variants, after checking their hyperparameters."""
    with redirect_stdout(sys.stderr):
        methods = [find_method(name) for name in dict.fromkeys(variant.method for variant in VARIANTS)]
    params = methods[-1].params(session.recipe.params_for("haframe")).model_dump()
    if not 0.0 < params["alpha"] < 1.0:
        raise UserError(f"methods.haframe.alpha = {params['alpha']}: HAFrame has both losses only between 0 and 1")
    return methods


def plan_variants(
    recipe: Recipe, prepared: Prepared, methods: Sequence[LoadedMethod], seeds: int, weights: str | None
) -> list[list[Job]]:
    """Return the jobs of each variant by seed; a comparison has the same ones, except for the frame alone."""
    frame_alone = with_params(recipe, "haframe", {"alpha": 0.0})
    by_name = {method.name: [method] for method in methods}
    return [
        make_plan(
            frame_alone if variant is FRAME_ALONE else recipe,
            prepared,
            by_name[variant.method],
            [variant.type],
            seeds,
            weights,
        )
        for variant in VARIANTS
    ]
