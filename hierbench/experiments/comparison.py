"""`hierbench run`: plan, prepare, train, re-rank, and publish the leaderboard."""

import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path

from hierbench.api.registry import Broken, Found, find_all, find_or_broken
from hierbench.config.options import Options, chosen_types, is_path
from hierbench.config.recipe import FeatureType, Recipe, load_recipe
from hierbench.config.tuned import Tuned, find_tuned, read_tuned, tuned_file
from hierbench.execution.scheduler import planned, states
from hierbench.execution.standalone import show_commands
from hierbench.experiments.plan_cache import remember
from hierbench.experiments.publishing import publish_board, show_board
from hierbench.experiments.session import announce, make_setting, obtain, run_and_mirror, say_failures, settle
from hierbench.leaderboard.board import Board
from hierbench.planning.dry_run import blocked_lines, costs, lines_of_plan
from hierbench.planning.plan import check_request, make_plan
from hierbench.planning.resources import Setting
from hierbench.runs.job import Job
from hierbench.utils.console import say
from hierbench.utils.errors import UserError
from hierbench.utils.files import write_json


def compare(options: Options, *, tuned: bool = False, file: Path | None = None) -> int:
    """Run the command and return its exit code: 0, or 1 where a job failed.

    Args:
        options: of the command.
        tuned: use the hyperparameters that tuning found, for the methods where it found any.
        file: holds them; None for those in the folder of runs and those shipped.
    """
    recipe = load_recipe(options.dataset, options.overrides, options.protocol)
    seeds = options.count_seeds(recipe)
    types = chosen_types(options.types)
    with redirect_stdout(sys.stderr):
        methods, broken = _methods(options.methods)
    check_request(recipe, methods, types)
    tuned_by = tuned_params(recipe, methods, types, options.runs, file) if tuned else {}
    asked, read = options, recipe
    recipe, options = settle(recipe, options)
    inputs, models = obtain(recipe, options), partial(costs, recipe, methods, types)
    if inputs.prepared is None:
        lines = blocked_lines(methods, types, seeds)
        announce(recipe, lines, inputs, make_setting(options, sum(line.trains for line in lines)), options, models)
        return 0
    cache_plan = (lambda plan: None) if tuned or broken else remember(asked, read)
    params = {key: entry.params for key, entry in tuned_by.items()}
    plan = make_plan(recipe, inputs.prepared, methods, types, seeds, inputs.digest, params)
    setting = make_setting(options, sum(job.trains for job in plan), weights=inputs.weights)
    state = states(plan, setting.store)
    announce(recipe, lines_of_plan(plan, state), inputs, setting, options, models)
    if options.dry_run:
        return 0
    if options.plan_only:
        planned(plan, setting.store, say)
        show_commands(plan, state, setting, as_json=options.as_json)
        return 1 if broken else 0
    failed = carry_out(recipe, plan, setting, options, tuned_by)
    if not failed:
        cache_plan(plan)
    return 1 if failed or broken else 0


def tuned_params(
    recipe: Recipe, methods: Sequence[Found], types: Sequence[FeatureType], runs: Path, file: Path | None
) -> dict[tuple[str, FeatureType], Tuned]:
    """Return what tuning found for these methods under the recipe's protocol.

    Raises:
        UserError: tuning found nothing, or hyperparameters that a method does not take.
    """
    known = find_tuned(runs, recipe.dataset) if file is None else read_tuned(file)
    asked = {found.name: found for found in methods}
    found = {
        (method, kind): entry
        for (protocol, method, kind), entry in known.items()
        if protocol == recipe.protocol and method in asked and kind in types
    }
    if not found:
        place = file or tuned_file(runs, recipe.dataset)
        raise UserError(f"nothing in {place} was tuned for this; run: hierbench tune --dataset {recipe.dataset}")
    for (method, kind), entry in found.items():
        asked[method].params(recipe.params_of(method) | entry.params)
        shown = ", ".join(f"{name} {value:g}" for name, value in entry.params.items())
        say(f"tuned: {method} {kind}: {shown} ({entry.budget} runs, {entry.date})")
    return found


def carry_out(
    recipe: Recipe,
    plan: list[Job],
    setting: Setting,
    options: Options,
    tuned: Mapping[tuple[str, FeatureType], Tuned],
) -> dict[str, str]:
    """Run what is missing of a plan and publish the leaderboard; return {id: error} of the jobs that failed."""
    labels = {job.id: job.spec.label for job in plan}

    def publish() -> tuple[Board, Path]:
        for job in plan:
            (setting.runs / job.id / "ablation.json").unlink(missing_ok=True)  # it was asked for as a row
            if (entry := tuned.get((job.spec.method.name, job.spec.type))) is not None:
                budget = {"trials": entry.trials + entry.pruned, "runs": entry.runs, "study": entry.study}
                write_json(setting.runs / job.id / "tuning.json", budget)
        return publish_board(recipe.dataset, options.runs, [job.id for job in plan if job.shown])

    with redirect_stdout(sys.stderr):  # a method may print; standard output has only the results
        # Names instead of paths: MLflow may be shared, and a path tells where this user's files are.
        names = [Path(name).stem if is_path(name) else name for name in _asked(options.methods)]
        board, failed = run_and_mirror(plan, setting, options, ",".join(names), labels, publish)
    show_board(board, options)
    say_failures(failed, labels, options)
    return failed


def _methods(text: str) -> tuple[list[Found], int]:
    """Return the methods asked for, and how many cannot be imported: those are reported and left out."""
    found = [item for name in _asked(text) for item in (find_all() if name == "all" else [find_or_broken(name)])]
    methods = {item.name: item for item in found if isinstance(item, Found)}
    broken = [item for item in found if isinstance(item, Broken)]
    if not methods:
        reasons = "; ".join(item.reason for item in broken)
        raise UserError(reasons or "--methods names no method; use all, or names separated by commas")
    for item in broken:
        say(f"warning: {item.reason}; it is left out")
    return list(methods.values()), len(broken)


def _asked(text: str) -> list[str]:
    return list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
