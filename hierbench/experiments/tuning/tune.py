"""`hierbench tune`: search a method's hyperparameters by validation hierdist@1; the test set is never looked at."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from sys import stderr

from optuna.trial import TrialState

from hierbench.api.method import Method
from hierbench.api.registry import Found, find_method
from hierbench.config.options import Options, chosen_types
from hierbench.config.recipe import FeatureType, Recipe, load_recipe
from hierbench.config.tuned import Tuned, tuned_file, write_tuned
from hierbench.experiments.publishing import say_notes
from hierbench.experiments.session import (
    make_setting,
    obtain,
    settle,
    time_to_train,
    workers_and_threads,
)
from hierbench.experiments.tuning.study import Search, Space, database_errors, json_params
from hierbench.experiments.tuning.tuner import OBJECTIVE, Target, Tuning, search_space, shown
from hierbench.leaderboard.statistics import summarise
from hierbench.planning.plan import check_request
from hierbench.planning.resources import Setting
from hierbench.runs.mlflow_mirror import Mirror, default_uri, sqlite_uri
from hierbench.utils.console import Meter, duration, say
from hierbench.utils.errors import UserError
from hierbench.utils.lock import wait_for_lock


def tune(options: Options, storage: str | None, sampler: str, trials: int | None, output: Path | None) -> int:
    """Run the command and return its exit code: 0, or 1 where a run failed."""
    recipe = load_recipe(options.dataset, options.overrides, options.protocol)
    options.count_seeds(recipe)
    types = chosen_types(options.types)
    with redirect_stdout(stderr):
        methods = [find_method(name.strip()) for name in options.methods.split(",") if name.strip()]
    check_request(recipe, methods, types)
    spaces = _spaces(recipe, methods, sampler, trials)
    recipe, options = settle(recipe, options)
    storage = storage or sqlite_uri(options.runs / "optuna.db", "give --storage URL")
    pairs = [(found, kind) for found in methods for kind in found.cls.types if kind in types]
    kinds = [kind for found, kind in pairs for _ in range(spaces[found.name].trials * recipe.tune.runs)]
    workers, threads = workers_and_threads(options, len(kinds))
    got = obtain(recipe, options)
    if options.dry_run or isinstance(got, str):
        for found, kind in pairs:
            _say_space(spaces[found.name], found.name, kind, recipe.tune.runs)
        prepared = None if isinstance(got, str) else got[0]
        seconds = time_to_train(recipe, kinds, prepared, options.device, workers, threads, options.devices)
        if seconds:
            say(f"at least {duration(seconds)} on this machine ({options.device}), less what is cached")
        if isinstance(got, str):
            say(f"blocked: {got}")
        return 0
    prepared, weights, digest = got
    say_notes(prepared)
    setting = make_setting(options, len(kinds), weights=weights)
    file = output or tuned_file(options.runs, recipe.dataset)
    failed = False
    for found, kind in pairs:
        target = Target(recipe, prepared, found, kind, digest)
        with database_errors(storage):
            failed |= _tune_one(target, spaces[found.name], sampler, storage, setting, options, file)
    return 1 if failed else 0


def _spaces(recipe: Recipe, methods: Sequence[Found], sampler: str, trials: int | None) -> dict[str, Space]:
    """Return what is searched of each method; with TPE all get the same number of trials."""
    if sampler == "grid" and trials is not None:
        raise UserError("--trials is for --sampler tpe; a grid has as many as it has points")
    spaces = {}
    for found in methods:
        space = search_space(recipe, found)
        if space is None or not issubclass(found.cls, Method):
            raise UserError(f"{found.name} has no hyperparameters to tune")
        spaces[found.name] = space
    if sampler == "grid":
        return spaces
    budget = trials or max(space.trials for space in spaces.values())
    return {name: replace(space, trials=budget) for name, space in spaces.items()}


def _say_space(space: Space, name: str, kind: FeatureType, runs: int) -> None:
    values = "; ".join(f"{key} {', '.join(f'{value:g}' for value in points)}" for key, points in space.grid.items())
    say(f"{name} {kind}: {space.trials} configurations x {runs} runs ({values})")


def _tune_one(
    target: Target, space: Space, sampler: str, storage: str, setting: Setting, options: Options, file: Path
) -> bool:
    """Search one study to its end, write the winner, and return whether a run failed."""
    name = target.study(space, sampler)
    lock = wait_for_lock(options.runs, "study")  # two processes that make the same database fail
    try:
        search = Search(storage, name, space, sampler)
    finally:
        lock.release(remove=True)
    runs, epochs = target.recipe.tune.runs, target.recipe.train.epochs
    ended = [trial for trial in search.trials() if trial.state in (TrialState.COMPLETE, TrialState.PRUNED)]
    left = space.trials - len(ended)
    say(f"{target.label}: {space.trials} configurations x {runs} runs, {len(ended)} done; study {name!r} in {storage}")
    with Meter(f"tuning {target.label}", max(left * runs * epochs, 1)) as meter, redirect_stdout(stderr):
        uri = options.mlflow or default_uri(options.runs)
        title = f"tune {target.label} {time.strftime('%Y-%m-%d %H:%M:%S')}"
        mirror = Mirror(uri, options.runs, target.recipe.dataset, title, lambda line: meter.say(f"warning: {line}"))
        tuning = Tuning(target, search, setting, mirror, meter)
        status = "KILLED"
        try:
            tuning.run()
            status = "FAILED" if tuning.failed else "FINISHED"
        finally:
            mirror.close(status)
    best = winner(search, name, runs)
    if best is None:
        say(f"{target.label}: no configuration was tried to its end")
        return True
    write_tuned(file, {(target.recipe.protocol, target.found.name, target.type): best})
    _show(target, search, best, file)
    return bool(tuning.failed)


def winner(search: Search, study: str, runs: int) -> Tuned | None:
    """Return the best configuration with what speaks for it, None if none was tried to its end."""
    finished = search.finished()
    if not finished:
        return None
    cells = [summarise(trial.user_attrs["values"]) for trial in finished[:2]]
    first, second = cells[0], cells[1] if len(cells) > 1 else None
    separated = False
    if second is not None and first.ci95 is not None and second.ci95 is not None:
        assert first.mean is not None and second.mean is not None
        separated = second.mean - first.mean > first.ci95 + second.ci95
    assert first.mean is not None
    return Tuned(
        params=json_params(finished[0]),
        study=study,
        date=time.strftime("%Y-%m-%d", time.gmtime()),
        sampler=search.sampler,
        trials=len(finished),
        pruned=sum(trial.state == TrialState.PRUNED for trial in search.trials()),
        runs=runs,
        mean=first.mean,
        ci95=first.ci95,
        runner_up=json_params(finished[1]) if second else {},
        runner_up_mean=second.mean if second else None,
        runner_up_ci95=second.ci95 if second else None,
        separated=separated,
    )


def _show(target: Target, search: Search, best: Tuned, file: Path) -> None:
    from tabulate import tabulate

    lines = []
    for rank, trial in enumerate(search.finished(), 1):
        cell = summarise(trial.user_attrs["values"])
        width = "-" if cell.ci95 is None else f"{cell.ci95:.4f}"
        lines.append([rank, *(f"{value:g}" for value in trial.params.values()), f"{cell.mean:.4f} +/- {width}"])
    headers = ["Rank", *search.space.grid, f"Validation {OBJECTIVE} ↓"]
    print(f"\n{tabulate(lines, headers, tablefmt='pipe', disable_numparse=True)}\n", flush=True)
    certain = "" if best.separated else "; its interval meets the next one's, so the choice may be chance"
    print(f"{target.label}: {shown(best.params)} ({best.budget} runs){certain}; written to {file}", flush=True)
