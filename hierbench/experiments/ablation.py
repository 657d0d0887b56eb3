"""`hierbench ablate`: the four variants of the paper's ablation, trained where missing, and their table."""

import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from functools import partial
from pathlib import Path

from hierbench.api.registry import Found, find_method
from hierbench.config.options import Options
from hierbench.config.recipe import FEATURE_TYPES, Recipe, load_recipe
from hierbench.data.prepared import Prepared
from hierbench.execution.scheduler import planned, states
from hierbench.experiments.session import announce, make_setting, obtain, run_and_mirror, say_failures, settle
from hierbench.leaderboard.ablation import FRAME_ALONE, VARIANTS, Ablation, ablation_from_runs, as_json, markdown
from hierbench.planning.dry_run import Line, costs, lines_of_plan
from hierbench.planning.plan import check_request, make_plan
from hierbench.runs.job import Job
from hierbench.runs.store import Store
from hierbench.utils.console import say
from hierbench.utils.errors import UserError
from hierbench.utils.files import write_json, write_text


def ablate(options: Options, render: Callable[[Sequence[Ablation]], str], write: Callable[[str], None]) -> int:
    """Run what is missing, `write` the table that `render` makes, and return 0, or 1 where a job failed."""
    recipe = load_recipe(options.dataset, options.overrides, options.protocol)
    seeds = options.count_seeds(recipe)
    methods = _methods(recipe)
    recipe, options = settle(recipe, options)
    inputs, models = obtain(recipe, options), partial(costs, recipe, methods, FEATURE_TYPES)
    setting = make_setting(options, seeds * len(VARIANTS), weights=inputs.weights)
    if inputs.prepared is None:
        lines = [Line(variant.name, variant.type, seed, "blocked") for seed in range(seeds) for variant in VARIANTS]
        announce(recipe, lines, inputs, setting, options, models)
        return 0
    variants = plan_variants(recipe, inputs.prepared, methods, seeds, inputs.digest)
    plan = [job for jobs in zip(*variants, strict=True) for job in jobs]  # seeds outermost: all rows fill evenly
    names = {job.id: variant.name for variant, jobs in zip(VARIANTS, variants, strict=True) for job in jobs}
    lines = lines_of_plan(plan, states(plan, setting.store))
    announce(recipe, [replace(line, method=names[line.id or ""]) for line in lines], inputs, setting, options, models)
    if options.dry_run:
        return 0
    labels = {job.id: f"{names[job.id]} {job.spec.type} seed {job.spec.seed}" for job in plan}
    table_file = options.runs / f"ablation-{recipe.dataset}.md"
    for job in variants[VARIANTS.index(FRAME_ALONE)]:  # not a row of the leaderboard, unless a comparison planned it
        if not (setting.runs / job.id / "spec.json").exists():
            planned([job], Store(setting.runs), say)
            write_json(setting.runs / job.id / "ablation.json", {"variant": FRAME_ALONE.name})

    def publish() -> tuple[Ablation, Path]:
        ids = [[job.id for job in jobs] for jobs in variants]
        table = ablation_from_runs(recipe.dataset, recipe.title, recipe.model.backbone, Store(setting.runs), ids)
        write_text(table_file.with_suffix(".json"), as_json([table]))
        write_text(table_file, markdown([table]))
        return table, table_file

    with redirect_stdout(sys.stderr):  # a method may print; standard output has only the results
        table, failed = run_and_mirror(plan, setting, options, "ablation", labels, publish)
    write(render([table]))
    say(f"\ntables: {table_file} and .json; runs: {options.runs}/<id>/")
    say_failures(failed, labels, options)
    return 1 if failed else 0


def _methods(recipe: Recipe) -> list[Found]:
    """Return the methods of the variants, after checking them and their hyperparameters."""
    with redirect_stdout(sys.stderr):
        methods = [find_method(name) for name in dict.fromkeys(variant.method for variant in VARIANTS)]
    check_request(recipe, methods, FEATURE_TYPES)
    params = methods[-1].params(recipe.params_of("haframe")).model_dump()
    if not 0.0 < params["alpha"] < 1.0:
        raise UserError(f"methods.haframe.alpha = {params['alpha']}: HAFrame has both losses only between 0 and 1")
    return methods


def plan_variants(
    recipe: Recipe, prepared: Prepared, methods: Sequence[Found], seeds: int, weights: str | None
) -> list[list[Job]]:
    """Return the jobs of each variant by seed; a comparison has the same ones, except for the frame alone.

    Args:
        recipe: the configuration.
        prepared: the dataset.
        methods: those of the variants.
        seeds: how many, from 0.
        weights: see `make_plan`.
    """
    values = recipe.params_of("haframe") | {"alpha": 0.0}
    frame_alone = recipe.model_copy(update={"methods": recipe.methods | {"haframe": values}})
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
