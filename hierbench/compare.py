"""`hierbench run`: plan, prepare, train, re-rank, and publish the leaderboard."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path

from hierbench.data.prepared import Prepared
from hierbench.discovery import Broken, Found, find_all, find_or_broken
from hierbench.errors import UserError, unknown_name
from hierbench.files import write_text
from hierbench.leaderboard.board import Board, board_from_runs
from hierbench.leaderboard.render import as_json, markdown
from hierbench.method import Method
from hierbench.plan import Job, check_request, make_plan
from hierbench.preview import blocked_lines, costs, lines_of_plan, say, show_dry_run, summary
from hierbench.recipe import FEATURE_TYPES, FeatureType, Recipe, load_recipe
from hierbench.runner import Setting, states
from hierbench.session import (
    Options,
    choose_device,
    obtain,
    run_and_mirror,
    say_failures,
    say_notes,
    time_to_train,
    workers_and_threads,
)
from hierbench.store import Store
from hierbench.tracking import default_uri


def compare(options: Options) -> int:
    """Run the command and return its exit code: 0, or 1 where a job failed."""
    recipe = load_recipe(options.dataset, options.overrides, options.protocol)
    seeds = options.count_seeds(recipe)
    types = _types(options.types)
    with redirect_stdout(sys.stderr):
        methods, broken = _methods(options.methods)
    check_request(recipe, methods, types)
    options = replace(options, device=choose_device(options.device))

    found = obtain(recipe, options)
    if isinstance(found, str):
        lines, device = blocked_lines(methods, types, seeds), options.device
        kinds = [line.type for line in lines if line.method in {m.name for m in methods if issubclass(m.cls, Method)}]
        workers, threads = workers_and_threads(options, len(kinds))
        seconds = time_to_train(recipe, kinds, None, device, workers, threads)
        show_dry_run(recipe, lines, seconds, costs(recipe, methods, types), device, found, as_json=options.as_json)
        return 0
    prepared, weights, digest = found
    plan = make_plan(recipe, prepared, methods, types, seeds, digest)
    failed = carry_out(recipe, plan, prepared, weights, methods, types, options)
    return 1 if failed or (broken and not options.dry_run) else 0


def carry_out(
    recipe: Recipe,
    plan: list[Job],
    prepared: Prepared,
    weights: Path | None,
    methods: Sequence[Found],
    types: Sequence[FeatureType],
    options: Options,
) -> dict[str, str]:
    """Show a plan, run what is missing of it and publish the leaderboard; return what failed."""
    state = states(plan, Store(options.runs))
    workers, threads = workers_and_threads(options, sum(job.trains for job in plan))
    setting = Setting(options.runs.resolve(), options.data_dir.resolve(), options.device, workers, threads, weights)
    kinds = [job.spec.type for job in plan if state[job.id] == "train"]
    seconds = time_to_train(recipe, kinds, prepared, options.device, workers, threads, measure=options.dry_run)
    lines = lines_of_plan(plan, state)
    if options.dry_run:
        models = costs(recipe, methods, types)
        show_dry_run(recipe, lines, seconds, models, options.device, "", as_json=options.as_json)
        return {}
    say_notes(prepared)
    say(summary(recipe, lines, seconds, options.device, ""))
    labels = {job.id: job.spec.label for job in plan}

    def publish() -> tuple[Board, Path]:
        board = board_from_runs(recipe.dataset, Store(setting.runs), [job.id for job in plan if job.shown])
        table = options.runs / f"leaderboard-{recipe.dataset}.md"
        write_text(table.with_suffix(".json"), as_json(board))
        write_text(table, markdown(board))
        return board, table

    with redirect_stdout(sys.stderr):  # a method may print; results alone go to standard output
        board, failed = run_and_mirror(plan, setting, options, options.methods, labels, publish)
    _show(board, options)
    say_failures(failed, labels, options)
    return failed


def _types(text: str) -> list[FeatureType]:
    asked = [part.strip() for part in text.split(",") if part.strip()]
    for name in asked:
        if name not in FEATURE_TYPES:
            raise unknown_name("type", name, FEATURE_TYPES)
    if not asked:
        raise UserError("--types names no type; known: type-I, type-II")
    return [known for known in FEATURE_TYPES if known in asked]


def _methods(text: str) -> tuple[list[Found], int]:
    """Return the methods asked for, and how many can not be imported: those are reported and left out."""
    names = list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    found = [item for name in names for item in (find_all() if name == "all" else [find_or_broken(name)])]
    methods = {item.name: item for item in found if isinstance(item, Found)}
    broken = [item for item in found if isinstance(item, Broken)]
    if not methods:
        reasons = "; ".join(item.reason for item in broken)
        raise UserError(reasons or "--methods names no method; use all, or names separated by commas")
    for item in broken:
        say(f"warning: {item.reason}; it is left out")
    return list(methods.values()), len(broken)


def _show(board: Board, options: Options) -> None:
    print(as_json(board) if options.as_json else f"\n{markdown(board)}", end="", flush=True)
    say(f"\ntables: {options.runs}/leaderboard-{board.dataset}.md and .json; runs: {options.runs}/<id>/")
    if options.mlflow is None and default_uri(options.runs).startswith("sqlite:"):
        say(f"browse: uv run mlflow ui --backend-store-uri {shlex.quote(default_uri(options.runs))}")
