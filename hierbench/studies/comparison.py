"""`hierbench run` and `hierbench.run`: a leaderboard of methods on types of models, by seed."""

import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from hierbench.api.registry import LoadedMethod
from hierbench.config.options import Options, folder_options
from hierbench.config.rates import PREFIX
from hierbench.config.recipe import Recipe, chosen_types
from hierbench.config.sections import PAPER_METHODS, FeatureType
from hierbench.config.tuned_values import Tuned, find_tuned, read_tuned, tuned_file
from hierbench.execution.jobs import (
    check_section,
    find_methods,
    make_jobs,
    requested_methods,
    with_bases,
    with_params,
)
from hierbench.execution.plan import Plan, plan_jobs, plan_without_data
from hierbench.execution.request import ResolvedRequest, requested_recipe, resolve
from hierbench.execution.resources import make_setting
from hierbench.execution.scheduler import states
from hierbench.hierarchy.label_tree import MATRIX_CLASSES
from hierbench.leaderboard.board import Board
from hierbench.leaderboard.columns import PAPER_COLUMNS, Column, check_columns
from hierbench.leaderboard.extra_columns import with_columns
from hierbench.leaderboard.formats import render
from hierbench.leaderboard.open_board import requested_records
from hierbench.leaderboard.statistics import Row
from hierbench.runs.job import Job
from hierbench.runs.mlflow_mirror import default_uri, page_of_runs
from hierbench.runs.record_reader import read_records
from hierbench.runs.requests import Budget
from hierbench.studies.dry_run import about, megabytes
from hierbench.studies.study import StudyReport, StudyResult, carry_out
from hierbench.utils.console import say
from hierbench.utils.errors import UserError
from hierbench.utils.text import is_path

AGAIN = "; remove its folder to train it again"
TunedRows = Mapping[tuple[str, FeatureType], Tuned]


def compare(
    options: Options,
    *,
    tuned: bool = False,
    file: Path | None = None,
    columns: Sequence[Column] = PAPER_COLUMNS,
) -> StudyResult:
    """Run the missing jobs and return the leaderboard, or nothing for a dry run.

    The exit code is 1 if a job failed or a method cannot be imported.

    Args:
        options: of the command.
        tuned: use the hyperparameters that tuning found, for the methods where it found any.
        file: holds them; None for those in the runs folder and those shipped.
        columns: of the leaderboard.
    """
    recipe = requested_recipe(options)
    with redirect_stdout(sys.stderr):
        methods, num_broken = find_methods(requested_methods(options))
    tuned_rows = tuned_params(options, recipe, methods, file) if tuned else None
    request = resolve(options, recipe, methods, may_be_unwritable=True)
    if request.prepared is not None:
        check_columns(columns, request.prepared.hierarchy(request.recipe.distance))
    plan = plan_comparison(request, methods, tuned_rows)
    result = carry_out(plan, partial(comparison_report, columns=columns))
    if num_broken and not options.dry_run:
        return replace(result, shown=result.shown._replace(code=1))
    return result


def plan_comparison(request: ResolvedRequest, methods: Sequence[LoadedMethod], tuned: TunedRows | None = None) -> Plan:
    """Return a job for each method, type and seed, and for their bases.

    Raises:
        UserError: a runs folder that cannot be written lacks a run.
    """
    options = request.options
    recipe = request.recipe
    jobs: list[Job] = []
    trained = with_bases(methods).values()  # bases that are no rows of their own are trained, too
    networks = [
        (recipe, method, feature_type)
        for feature_type in request.types
        for method in trained
        if feature_type in method.cls.types
    ]
    if request.prepared is None:
        rows = [(method.name, feature_type, method.trains) for _, method, feature_type in networks]
        planned = plan_without_data(rows, request.num_seeds, request.missing.to_bring)
    else:
        params = {key: entry.params for key, entry in (tuned or {}).items()}
        jobs = make_jobs(
            recipe, request.prepared, methods, request.types, request.num_seeds, request.weights_digest, params
        )
        planned = plan_jobs(jobs, states(jobs, request.store))
    if request.unwritable and (options.plan_only or any(line.state != "cached" for line in planned)):
        raise UserError(request.unwritable)
    params_by_row = {f"{method}:{kind}": entry.params for (method, kind), entry in (tuned or {}).items()}
    # Methods by name: a path reveals the user's folders, and MLflow may be shared.
    names = [Path(name).stem if is_path(name) else name for name in requested_methods(options)]
    return Plan(
        request,
        planned,
        make_setting(options, sum(line.trains for line in planned), weights=request.weights),
        title=",".join(names),
        kind="comparison",
        options={} if tuned is None else {"tuned": params_by_row},
        recorded_ids=[job.id for job in jobs],
        budgets=_budgets(jobs, {key: row for key, row in (tuned or {}).items() if not _set_by_hand(options, *key)}),
        networks=networks,
        notes=[*_note_defaults(recipe, trained, tuned or {}), *_note_frame(request, trained)],
    )


def _note_defaults(recipe: Recipe, methods: Iterable[LoadedMethod], tuned: TunedRows) -> list[str]:
    """Return a line on further methods that neither the recipe nor a search has values for."""
    searched = {*PAPER_METHODS, *recipe.methods, *(method for method, _ in tuned)}
    further = [method for method in methods if method.trains and method.source is None]
    names = [method.name for method in further if method.name not in searched]
    if recipe.tune.searched or not names:
        return []
    return [f"note: {', '.join(names)}: with their defaults, which were not searched on {recipe.dataset}"]


def _note_frame(request: ResolvedRequest, methods: Iterable[LoadedMethod]) -> list[str]:
    """Return a line on the time and memory of HAFrame's frame, where they are more than those of some steps."""
    prepared = request.prepared
    if prepared is None or "type-II" not in request.types or all(method.name != "haframe" for method in methods):
        return []
    num_classes = prepared.hierarchy(request.recipe.distance).num_classes
    if num_classes <= MATRIX_CLASSES:
        return []
    from hierbench.execution.timing import matrix_rate  # PyTorch

    seconds = 4.0 / 3.0 * num_classes**3 / matrix_rate()
    memory = megabytes(4 * num_classes**2)
    return [f"note: haframe makes a frame of {num_classes:,} classes for each run, {about(seconds)} and {memory}"]


def comparison_report(plan: Plan, columns: Sequence[Column]) -> StudyReport:
    """Return the leaderboard of the runs of a plan."""
    options = plan.request.options
    ids = [job.id for job in plan.jobs if job.shown]
    board = Board.of(options.dataset, requested_records(options.runs, ids, AGAIN), ids)
    board = with_columns(board, columns, options.data_dir)
    board = replace(board, family=leaderboard_rows(board, columns, options))
    file = options.runs / f"leaderboard-{board.dataset}.md"
    means = {
        f"{column.name}/{row.type} {row.title}": row.metrics[column.name].mean
        for column in board.columns
        for row in board.rows
        if column.name in row.metrics
    }
    return StudyReport(
        board.table,
        {file.with_suffix(".json"): render(board.table, "json"), file: render(board.table)},
        _places(board, options),
        attached=file,
        means={name: mean for name, mean in means.items() if mean is not None},
        board=board,
    )


def leaderboard_rows(board: Board, columns: Sequence[Column], options: Options) -> tuple[Row, ...]:
    """Return the rows of the leaderboard that a table's runs belong to, whose tests are one family; () of another."""
    try:
        full_board = Board.of(options.dataset, read_records(options.runs), protocol=options.protocol)
    except UserError:
        return ()
    runs = {row.key: row.runs for row in full_board.rows}
    if any(runs.get(row.key) != row.runs for row in board.rows):
        return ()
    return with_columns(full_board, columns, options.data_dir).of_runs.rows


def _places(board: Board, options: Options) -> list[str]:
    """Return lines that say where the results are."""
    lines = [f"\ntables: {options.runs}/leaderboard-{board.dataset}.md and .json; runs: {options.runs}/<id>/"]
    uri = options.mlflow or default_uri(options.runs)
    address = page_of_runs(options.runs, uri, [run for row in board.rows for run in row.runs])
    if address:
        if uri.startswith("sqlite:///"):  # from any folder and shell: mlflow may not be on the path
            place = Path(uri.removeprefix("sqlite:///")).resolve()
            command = [sys.executable, "-m", "mlflow", "ui", "--backend-store-uri", f"sqlite:///{place}"]
            lines.append(f"serve:  {shlex.join(command)}")
        lines.append(f"browse: {address}")
    return lines


def _budgets(jobs: Sequence[Job], tuned: TunedRows) -> dict[str, Any]:
    """Return {METHOD:TYPE: how it was tuned} of the rows of jobs."""
    method_of = {job.id: job.spec.method.name for job in jobs}
    budgets: dict[str, Any] = {}
    for job in jobs:
        # A re-ranked row has the tuning of its bases: of the first that was tuned.
        names = [method_of[job_id] for job_id in (job.id, *job.spec.bases)]
        entry = next((tuned[name, job.spec.type] for name in names if (name, job.spec.type) in tuned), None)
        if entry is not None:
            kept = entry.model_dump(include={"runs", "study", "finalists", "mean", "ends"})
            budget = Budget(trials=entry.configurations, **kept)
            budgets[f"{names[0]}:{job.spec.type}"] = budget.model_dump(mode="json", exclude_defaults=True)
    return budgets


def tuned_params(options: Options, recipe: Recipe, methods: Sequence[LoadedMethod], file: Path | None) -> TunedRows:
    """Return the tuned hyperparameters under the recipe's protocol for these methods and their bases.

    Raises:
        UserError: tuning found nothing, or something that a method does not take.
    """
    types = chosen_types(options.types)
    runs = options.runs
    tuned = find_tuned(runs, recipe.dataset) if file is None else read_tuned(file)
    with redirect_stdout(sys.stderr):  # a method may print
        tuned_methods = with_bases(methods)
    entries = {
        (method, feature_type): entry
        for (protocol, method, feature_type), entry in tuned.items()
        if protocol == recipe.protocol and method in tuned_methods and feature_type in types
    }
    if not entries:
        place = file or tuned_file(runs, recipe.dataset)
        folders = folder_options(runs, options.data_dir)
        raise UserError(
            f"nothing in {place} was tuned for this; run: hierbench tune --dataset {options.dataset}{folders}"
        )
    for (method, feature_type), entry in entries.items():
        check_section(with_params(recipe, method, entry.params), tuned_methods[method])
        by_hand = _set_by_hand(options, method, feature_type)
        params = {name: value for name, value in entry.params.items() if name not in by_hand}
        entries[method, feature_type] = entry.model_copy(update={"params": params})
        shown = ", ".join(f"{name} {value:g}" for name, value in params.items())
        remark = f"; by hand: {', '.join(sorted(by_hand))}" if by_hand else ""
        say(f"tuned: {method} {feature_type}: {shown} ({entry.budget} runs, {entry.date}){remark}")
    return entries


def _set_by_hand(options: Options, method: str, feature_type: FeatureType) -> set[str]:
    """Return the hyperparameters of a row that --set gives, as tuned values name them: they come before those."""
    prefixes = {f"methods.{method}.": "", f"train.lr.{feature_type}.": PREFIX}
    keys = [override.partition("=")[0] for override in options.overrides]
    return {
        start + key.removeprefix(prefix) for key in keys for prefix, start in prefixes.items() if key.startswith(prefix)
    }
