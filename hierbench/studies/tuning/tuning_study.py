"""`hierbench tune`: search hyperparameters and rates by validation hierdist@1; the test set is never opened."""

import shlex
import time
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from sys import stderr
from typing import Any, NamedTuple

from optuna.trial import TrialState

from hierbench.api.method import PostHoc, base_names
from hierbench.api.registry import BASE_ONLY_NAME, LoadedMethod
from hierbench.config.options import Options
from hierbench.config.recipe import Recipe, chosen_types
from hierbench.config.sections import FeatureType
from hierbench.config.tuned_values import Tuned, tuned_file, write_tuned
from hierbench.execution.estimate import estimate
from hierbench.execution.execution import Batch, Execution
from hierbench.execution.jobs import find_methods, requested_methods, with_bases
from hierbench.execution.plan import Plan
from hierbench.execution.request import ResolvedRequest, requested_recipe, resolve
from hierbench.execution.resources import make_setting
from hierbench.leaderboard.statistics import Summary
from hierbench.leaderboard.table import CommandOutput, Interval, Line, Number, Table, Text
from hierbench.runs.mlflow_mirror import sqlite_uri
from hierbench.runs.requests import Budget, Request, extend_request
from hierbench.studies.dry_run import describe, say_notes
from hierbench.studies.study import record
from hierbench.studies.tuning.batches import Batches, format_params
from hierbench.studies.tuning.search import (
    OBJECTIVE,
    Search,
    Space,
    Target,
    search_recipe,
    search_space,
)
from hierbench.studies.tuning.trial_record import TrialRecord
from hierbench.utils.console import duration, say
from hierbench.utils.errors import UserError


class PlannedSearch(NamedTuple):
    """A search that a command asks for: a method on a type of model, and its space."""

    method: LoadedMethod
    type: FeatureType
    space: Space


class FinishedSearch(NamedTuple):
    """A search that has ended, its complete trials, best first, and the winner."""

    target: Target
    results: list[tuple[dict[str, Any], Summary]]
    best: Tuned


def tune(options: Options, sampler: str | None, trials: int | None) -> CommandOutput:
    """Search for all methods on all types side by side; the exit code is 0, or 1 where a run failed."""
    recipe = requested_recipe(options)
    sampler = sampler or recipe.tune.sampler
    if sampler != "grid":
        trials = trials or recipe.tune.trials
    methods, num_broken = _tunable_methods(requested_methods(options))
    methods, searches = _find_searches(options, recipe, methods, sampler, trials)
    storage = sqlite_uri(options.runs / "optuna.db", "choose another --runs")
    request = resolve(options, recipe, methods)
    plan = plan_searches(request, searches, {"sampler": sampler, "trials": trials})
    if options.dry_run or request.prepared is None:
        return CommandOutput(searches_table(plan, searches))
    say_notes(request.prepared)
    recorded = record(plan)
    file = tuned_file(options.runs, recipe.dataset)
    finished: list[FinishedSearch] = []
    trained = search_recipe(request.recipe)
    with redirect_stdout(stderr), Execution(plan) as execution:  # a method may print
        num_runs = sum(count_runs(search.space, request.recipe) for search in searches)
        execution.meter.expect(float(num_runs * trained.train.rounds))
        started: list[Batches] = []
        for method, feature_type, space in searches:
            target = Target(trained, request.prepared, method, feature_type, request.weights_digest)
            search = Search(space, sampler, target.start(space), target.seed)
            started.append(start_search(target, search, storage, recorded, execution))
        run_side_by_side(started, execution)
        for batches in started:
            outcome = end_search(batches)
            if outcome is not None:
                target = outcome.target
                write_tuned(file, {(recipe.protocol, target.method.name, target.type): outcome.best})
                finished.append(outcome)
    lines = [f"browse: uvx optuna-dashboard {shlex.quote(storage)}", *execution.describe_failures()]
    has_failed = num_broken > 0 or len(finished) < len(searches) or bool(execution.failed)
    return CommandOutput(ranking_table(finished, file) if finished else None, lines, 1 if has_failed else 0)


def count_runs(space: Space, recipe: Recipe) -> int:
    """Return the number of runs of a search: of each configuration, and the further ones of the finalists."""
    tune = recipe.tune
    return space.trials * tune.runs + tune.finalists * max(0, tune.finalist_runs - tune.runs)


def plan_searches(request: ResolvedRequest, searches: Sequence[PlannedSearch], details: Mapping[str, Any]) -> Plan:
    """Return the plan of searches; jobs follow from results, and are added to the recorded request then."""
    num_runs = sum(count_runs(search.space, request.recipe) for search in searches)
    options = {"seeds": request.recipe.tune.runs, **details}
    return Plan(
        request,
        (),
        make_setting(request.options, num_runs, weights=request.weights),
        title=f"tune {','.join(dict.fromkeys(search.method.name for search in searches))}",
        kind="tuning",
        options={name: value for name, value in options.items() if value is not None},
    )


def searches_table(plan: Plan, searches: Sequence[PlannedSearch]) -> Table:
    """Return the spaces of a dry run, and about how long they take."""
    request = plan.request
    recipe = search_recipe(request.recipe)
    rows = []
    for method, feature_type, space in searches:
        values = "; ".join(f"{key} {', '.join(f'{x:g}' for x in points)}" for key, points in space.grid.items())
        words = [method.name, feature_type, str(space.trials), str(recipe.tune.runs), values]
        rows.append(Line(list(map(Text, words))))
    kinds = [search.type for search in searches for _ in range(count_runs(search.space, recipe))]
    needed = estimate(recipe, kinds, request.inputs, plan.setting)
    notes = [describe(extraction, recipe) for extraction in needed.extractions]
    if needed.seconds:
        time = duration(needed.seconds)
        notes.append(f"About {time} on this machine ({plan.setting.device}), less for cached configurations.")
    missing = request.missing
    notes += [f"Blocked: {missing.to_bring}."] if missing.to_bring else []
    notes += [f"First: {missing.made_first}."] if missing.made_first and not missing.to_bring else []
    columns = ["Method", "Type", "Configurations", "Runs of each", "Values"]
    return Table(f"{recipe.title}, the searches", columns, rows, notes=notes)


def start_search(target: Target, search: Search, storage: str, request: Request, execution: Execution) -> Batches:
    """Return the batches of a search, whose trials are recorded, after a line that says how many are done."""
    runs = target.recipe.tune.runs
    name = target.study(search.space, search.sampler)
    record = TrialRecord(storage, name, execution.plan.request.options.runs)
    done = sum(trial.state == TrialState.COMPLETE for trial in record.trials())
    place = f"study {name!r} in {storage}"
    say(f"{target.label}: {search.space.trials} configurations x {runs} runs, {done} done; {place}")
    budget = Budget(trials=search.space.trials, runs=runs, study=name)
    root = execution.plan.setting.store.root
    request = extend_request(root, request, budget={target.row: budget.model_dump()})
    return Batches(target, search, record, execution, request)


def run_side_by_side(searches: Sequence[Batches], execution: Execution) -> None:
    """Run the next batch of every search together, until all have ended: more jobs at once than one search has."""
    for batches in zip_longest(*(search.steps() for search in searches)):
        execution.run(_joined([batch for batch in batches if batch is not None]))


def _joined(batches: Sequence[Batch]) -> Batch:
    ends = {job.id: batch.on_end for batch in batches for job in batch.jobs}
    labels = {run_id: label for batch in batches for run_id, label in batch.labels.items()}
    return Batch([job for batch in batches for job in batch.jobs], labels, on_end=lambda job: ends[job.id](job))


def end_search(batches: Batches) -> FinishedSearch | None:
    """Record where the best value lies at an end of its range; return None if no configuration was completed."""
    target = batches.target
    search = batches.search
    tune = target.recipe.tune
    finalists = f"{tune.finalists} x {tune.finalist_runs}" if tune.finalists else ""
    best = winner(search, batches.record.name, tune.runs, finalists)
    if best is None:
        say(f"{target.label}: no configuration was completed")
        return None
    if best.ends:
        extend_request(batches.store.root, batches.request, budget={target.row: {"ends": best.ends}})
    return FinishedSearch(target, search.results(), best)


def _tunable_methods(names: Sequence[str]) -> tuple[list[LoadedMethod], int]:
    """Return the named methods, with their bases that have no name for users, and how many cannot be imported."""
    with redirect_stdout(stderr):
        methods, num_broken = find_methods(names)
        bases = with_bases(methods)
    chosen_names = {method.name for method in methods}
    hidden = [base for name, base in bases.items() if name not in chosen_names and BASE_ONLY_NAME.fullmatch(name)]
    return [*methods, *hidden], num_broken


def _find_searches(
    options: Options, recipe: Recipe, methods: Sequence[LoadedMethod], sampler: str, trials: int | None
) -> tuple[list[LoadedMethod], list[PlannedSearch]]:
    """Return the methods that have a search space, and each one's spaces by type; only grids differ in the trials."""
    # Methods without anything to tune are left out; one that --set names, or all that are named, must have something.
    if sampler == "grid" and trials is not None:
        raise UserError("--trials is for --sampler random and tpe; a grid has as many as it has points")
    spaces = list[tuple[LoadedMethod, Space]]()
    notes = list[str]()
    for method in methods:
        space = search_space(recipe, method) if method.trains else None
        if space is not None:
            spaces.append((method, space))
            continue
        hint = f"its learning rates are searched with --set tune.grid.{method.name}.lr.classifier=[0.01,0.1]"
        if issubclass(method.cls, PostHoc):
            hint = f"it re-ranks {' and '.join(base_names(method.cls))}, which can be tuned"
        if BASE_ONLY_NAME.fullmatch(method.name) and method.name not in requested_methods(options):
            continue
        if method.name in recipe.tune.grid or len(methods) == 1:
            raise UserError(f"{method.name} has no hyperparameters to tune; {hint}")
        notes.append(f"note: {method.name} has nothing to tune and is left out; {hint}")
    if not spaces:
        raise UserError("nothing to tune; give learning rates, as in --set tune.grid.all.lr.classifier=[0.01,0.1]")
    budget = trials or max(space.trials for _, space in spaces)
    searches: list[PlannedSearch] = []
    types = chosen_types(options.types)
    idle = "no parameters with the rate of a backbone that is frozen"
    for method, whole_space in spaces:
        for feature_type in method.cls.types:
            if feature_type not in types:
                continue
            space = whole_space.of(recipe.model, feature_type)
            if space is None:
                notes.append(f"note: {method.name} {feature_type} is left out: it has {idle}")
            else:
                num_trials = len(space.points) if sampler == "grid" else budget
                searches.append(PlannedSearch(method, feature_type, replace(space, trials=num_trials)))
    if not searches and any(note.endswith(idle) for note in notes):  # else the types do not fit: `resolve` says so
        raise UserError(f"nothing to tune: type-I has {idle}")
    for note in notes:
        say(note)
    return [method for method, _ in spaces], searches


def winner(search: Search, study: str, runs: int, finalists: str = "") -> Tuned | None:
    """Return the best configuration and how sure it is, or None if no configuration was completed."""
    results = search.results()
    if not results:
        return None
    (params, best), (second, runner_up) = (*results, ({}, Summary(None, None)))[:2]
    if best.mean is None:
        return None
    separated = False
    if runner_up.mean is not None and best.ci95 is not None and runner_up.ci95 is not None:
        separated = runner_up.mean - best.mean > best.ci95 + runner_up.ci95
    return Tuned(
        params=params,
        study=study,
        date=time.strftime("%Y-%m-%d", time.gmtime()),
        sampler=search.sampler,
        trials=len(results),
        runs=runs,
        finalists=finalists,
        mean=best.mean,
        ci95=best.ci95,
        runner_up=second,
        runner_up_mean=runner_up.mean,
        runner_up_ci95=runner_up.ci95,
        separated=separated,
        others=search.other_choices(),
        ends=search.space.ends_near(params),
    )


def ranking_table(searches: Sequence[FinishedSearch], file: Path) -> Table:
    """Return the configurations of each search, best first, and below them the values chosen and written to `file`."""
    names = dict.fromkeys(name for search in searches for params, _ in search.results for name in params)
    return Table(
        title=f"{searches[0].target.recipe.title}, tuning",
        columns=["Method", "Model", "Rank", *names, f"Validation {OBJECTIVE} ↓"],
        rows=[
            Line(
                [
                    Text(target.method.name),
                    Text(target.type),
                    Number(rank, "d"),
                    *(Number(params.get(name), "g") for name in names),
                    Interval(cell.mean, cell.ci95, 4),
                ]
            )
            for target, results, _ in searches
            for rank, (params, cell) in enumerate(results, 1)
        ],
        items=[_choice(target, best, file) for target, _, best in searches],
        merged=1,
    )


def _choice(target: Target, best: Tuned, file: Path) -> str:
    has_interval = best.runs > 1 or best.finalists
    why = "its interval overlaps the next one's" if has_interval else "one run each has no interval"
    finals = f", the best {best.finalists}" if best.finalists else ""
    certain = "" if best.separated else f"; {why}, so the choice may be due to chance"
    ends = f"; at an end of its range: {', '.join(best.ends)}" if best.ends else ""
    by_params = dict[str, list[str]]()
    for rule, params in best.others.items():
        if params != best.params:
            by_params.setdefault(format_params(params), []).append(rule)
    others = "".join(f"; by {' and '.join(rules)} {params}" for params, rules in by_params.items())
    about = f"{certain}{ends}{others}; written to {file}"
    return f"{target.label}: {format_params(best.params)} ({best.budget} runs{finals}){about}"
