"""`hierbench ablate`: the four variants of the paper's ablation, trained where missing, and their table."""

import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from functools import partial

from hierbench.api.registry import Found, find_method
from hierbench.config.options import Options
from hierbench.config.recipe import Recipe
from hierbench.data.prepared import Prepared
from hierbench.execution.announce import announce
from hierbench.execution.dry_run import Line, lines_of_plan, parameters_of
from hierbench.execution.plan import make_plan, with_params
from hierbench.execution.scheduler import states
from hierbench.execution.session import Session
from hierbench.leaderboard.ablation import FRAME_ALONE, VARIANTS, ablation_of, ablation_table
from hierbench.leaderboard.board import Board
from hierbench.leaderboard.formats import render
from hierbench.leaderboard.opening import asked_records
from hierbench.leaderboard.table import Shown, Table
from hierbench.runs.job import Job
from hierbench.runs.mlflow_mirror import Mirror
from hierbench.runs.requests import asked_options, record_request
from hierbench.studies.publishing import AGAIN
from hierbench.utils.errors import UserError
from hierbench.utils.files import write_text


def ablate(options: Options) -> Shown:
    """Run what is missing and return the table; the exit code is 0, or 1 where a job failed."""
    session = Session(options)
    methods = _methods(session)
    inputs, seeds = session.open(methods), session.num_seeds
    recipe, runs = session.recipe, session.options.runs
    models = partial(parameters_of, recipe, methods, session.types)
    if inputs.prepared is None:
        lines = [Line(variant.name, variant.type, seed, "blocked") for seed in range(seeds) for variant in VARIANTS]
        announce(session, lines, models)
        return Shown(None)
    variants = plan_variants(recipe, inputs.prepared, methods, seeds, inputs.digest)
    plan = [job for jobs in zip(*variants, strict=True) for job in jobs]  # seeds outermost: all rows fill evenly
    names = {job.id: variant.name for variant, jobs in zip(VARIANTS, variants, strict=True) for job in jobs}
    lines = lines_of_plan(plan, states(plan, session.store))
    if not announce(session, [replace(line, method=names[line.id or ""]) for line in lines], models):
        return Shown(None)
    labels = {job.id: f"{names[job.id]} {job.spec.type} seed {job.spec.seed}" for job in plan}

    alone = [job.id for job in variants[VARIANTS.index(FRAME_ALONE)]]  # no row of a comparison, as all others are
    record_request(session.store.root, "ablation", recipe.dataset, asked_options(session.options, seeds), alone)

    def publish(mirror: Mirror) -> Table:
        ids = [[job.id for job in jobs] for jobs in variants]
        every = [job_id for group in ids for job_id in group]
        board = Board.of(session.options.dataset, asked_records(runs, every, AGAIN), every)
        table = ablation_table([(recipe.title, ablation_of(board, recipe.model.backbone, ids))])
        file = runs / f"ablation-{recipe.dataset}.md"
        write_text(file.with_suffix(".json"), render(table, "json"))
        write_text(file, render(table))
        mirror.attach(file)
        return table

    table, failures = session.carry_out(plan, "ablation", labels, publish)
    tables = f"\ntables: {runs}/ablation-{recipe.dataset}.md and .json; runs: {runs}/<id>/"
    return Shown(table, [tables, *failures], 1 if failures else 0)


def _methods(session: Session) -> list[Found]:
    """Return the methods of the variants, after checking their hyperparameters."""
    with redirect_stdout(sys.stderr):
        methods = [find_method(name) for name in dict.fromkeys(variant.method for variant in VARIANTS)]
    params = methods[-1].params(session.recipe.params_of("haframe")).model_dump()
    if not 0.0 < params["alpha"] < 1.0:
        raise UserError(f"methods.haframe.alpha = {params['alpha']}: HAFrame has both losses only between 0 and 1")
    return methods


def plan_variants(
    recipe: Recipe, prepared: Prepared, methods: Sequence[Found], seeds: int, weights: str | None
) -> list[list[Job]]:
    """Return the jobs of each variant by seed; a comparison has the same ones, except for the frame alone."""
    frame_alone = with_params(recipe, "haframe", {"alpha": 0.0})
    by_name = {found.name: [found] for found in methods}
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
