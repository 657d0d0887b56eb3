"""`hierbench ablate`: the four variants of the paper's ablation, trained where missing, and their table."""

import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from functools import partial

from hierbench.api.registry import LoadedMethod, find_method
from hierbench.config.options import Options
from hierbench.config.recipe import Recipe, ResolvedRecipe
from hierbench.data.prepared import Prepared
from hierbench.execution.jobs import make_jobs, with_params
from hierbench.execution.plan import Plan, plan_jobs, plan_without_data
from hierbench.execution.request import ResolvedRequest, requested_recipe, resolve
from hierbench.execution.resources import make_setting
from hierbench.execution.scheduler import states
from hierbench.leaderboard.ablation_table import FRAME_ALONE, VARIANTS, ablation_board, ablation_table
from hierbench.leaderboard.board import Board
from hierbench.leaderboard.formats import render
from hierbench.leaderboard.open_board import requested_records
from hierbench.leaderboard.table import CommandOutput
from hierbench.runs.job import Job
from hierbench.studies.comparison import AGAIN
from hierbench.studies.study import StudyReport, carry_out
from hierbench.utils.errors import UserError


def ablate(options: Options) -> CommandOutput:
    """Run the missing jobs and return the table; the exit code is 0, or 1 where a job failed."""
    recipe = requested_recipe(options)
    methods = _methods(recipe)
    request = resolve(options, recipe, methods)
    variants: list[list[Job]] = []
    if request.prepared is not None:
        variants = plan_variants(request.recipe, request.prepared, methods, request.num_seeds, request.weights_digest)
    return carry_out(plan_ablation(request, methods, variants), partial(ablation_report, variants=variants)).shown


def plan_ablation(request: ResolvedRequest, methods: Sequence[LoadedMethod], variants: Sequence[Sequence[Job]]) -> Plan:
    """Return the plan of all variants' jobs, seeds outermost: all rows fill evenly.

    Only the jobs of the frame alone are recorded, which is no row of a comparison, as all others are.
    """
    options = request.options
    recorded: Sequence[Job] = []
    if variants:
        named = zip(VARIANTS, variants, strict=True)
        name_by_id = {job.id: variant.name for variant, jobs in named for job in jobs}
        jobs = [job for same_seed in zip(*variants, strict=True) for job in same_seed]
        planned = plan_jobs(jobs, states(jobs, request.store), lambda job: name_by_id[job.id])
        recorded = variants[VARIANTS.index(FRAME_ALONE)]
    else:
        rows = [(variant.name, variant.type, True) for variant in VARIANTS]
        planned = plan_without_data(rows, request.num_seeds, request.missing.to_bring)
    return Plan(
        request,
        planned,
        make_setting(options, len(planned), weights=request.weights),
        title="ablation",
        kind="ablation",
        recorded_ids=[job.id for job in recorded],
        networks=[
            (request.recipe, method, feature_type)
            for feature_type in request.types
            for method in methods
            if feature_type in method.cls.types
        ],
    )


def ablation_report(plan: Plan, variants: Sequence[Sequence[Job]]) -> StudyReport:
    """Return the paper's table of the ablation."""
    recipe = plan.request.recipe
    options = plan.request.options
    ids = [[job.id for job in jobs] for jobs in variants]
    all_ids = [job_id for variant_ids in ids for job_id in variant_ids]
    board = Board.of(options.dataset, requested_records(options.runs, all_ids, AGAIN), all_ids)
    table = ablation_table([(recipe.title, ablation_board(board, recipe.model.backbone, ids))])
    file = options.runs / f"ablation-{recipe.dataset}.md"
    return StudyReport(
        table,
        {file.with_suffix(".json"): render(table, "json"), file: render(table)},
        [f"\ntables: {options.runs}/ablation-{recipe.dataset}.md and .json; runs: {options.runs}/<id>/"],
        attached=file,
    )


def _methods(recipe: Recipe) -> list[LoadedMethod]:
    """Return the methods of the variants, after checking their hyperparameters."""
    with redirect_stdout(sys.stderr):
        methods = [find_method(name) for name in dict.fromkeys(variant.method for variant in VARIANTS)]
    params = methods[-1].params(recipe.params_for("haframe")).model_dump()
    if not 0.0 < params["alpha"] < 1.0:
        raise UserError(f"methods.haframe.alpha = {params['alpha']}: HAFrame has both losses only between 0 and 1")
    return methods


def plan_variants(
    recipe: ResolvedRecipe, prepared: Prepared, methods: Sequence[LoadedMethod], seeds: int, weights: str | None
) -> list[list[Job]]:
    """Return the jobs of each variant by seed; a comparison has the same ones, except for the frame alone."""
    frame_alone = with_params(recipe, "haframe", {"alpha": 0.0})
    by_name = {method.name: [method] for method in methods}
    return [
        make_jobs(
            frame_alone if variant is FRAME_ALONE else recipe,
            prepared,
            by_name[variant.method],
            [variant.type],
            seeds,
            weights,
        )
        for variant in VARIANTS
    ]
