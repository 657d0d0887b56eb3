"""The comparison behind `hierbench run`: plan, prepare, train, re-rank, and publish the leaderboard."""

import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from hierbench.api.registry import Found
from hierbench.config.options import Options, folder_options, is_path
from hierbench.config.sections import FeatureType
from hierbench.config.tuned import Tuned, find_tuned, read_tuned, tuned_file
from hierbench.execution.announce import announce
from hierbench.execution.dry_run import blocked_lines, lines_of_plan, parameters_of
from hierbench.execution.plan import check_section, find_methods, make_plan, names_asked, with_bases, with_params
from hierbench.execution.scheduler import planned, states
from hierbench.execution.session import Session
from hierbench.execution.standalone import show_commands
from hierbench.leaderboard.columns import PAPER, Column, check_columns
from hierbench.runs.job import Job
from hierbench.runs.mlflow_mirror import Mirror
from hierbench.runs.requests import Budget, asked_options, record_request
from hierbench.studies.publishing import Ended, publish_board
from hierbench.utils.console import say
from hierbench.utils.errors import UserError


def compare(
    options: Options,
    *,
    tuned: bool = False,
    file: Path | None = None,
    columns: Sequence[Column] = PAPER,
) -> Ended:
    """Run what is missing and return the leaderboard, or nothing for a dry run.

    Args:
        options: of the command.
        tuned: use the hyperparameters that tuning found, for the methods where it found any.
        file: holds them; None for those in the runs folder and those shipped.
        columns: of the leaderboard.
    """
    session = Session(options)
    with redirect_stdout(sys.stderr):
        methods, broken = find_methods(names_asked(options))
    tuned_by = tuned_params(session, methods, file) if tuned else {}
    inputs, types, seeds = session.open(methods, may_be_closed=True), session.types, session.num_seeds
    recipe, prepared = session.recipe, inputs.prepared
    if prepared is not None:
        check_columns(columns, prepared.hierarchy(recipe.distance))
    params = {key: entry.params for key, entry in tuned_by.items()}
    plan = [] if prepared is None else make_plan(recipe, prepared, methods, types, seeds, inputs.digest, params)
    state = states(plan, session.store)
    if inputs.closed and (options.plan_only or set(state.values()) != {"cached"}):
        raise UserError(inputs.closed)
    lines = lines_of_plan(plan, state) if plan else blocked_lines(methods, types, seeds)
    trained = list(with_bases(methods).values())
    if not announce(session, lines, partial(parameters_of, recipe, trained, types)):
        return Ended()
    if inputs.closed:
        say(f"warning: {inputs.closed}; the table is not written there")
        return replace(publish_board(session.options, _shown(plan), columns), broken=broken)
    more = {"tuned": {f"{method}:{kind}": entry.params for (method, kind), entry in tuned_by.items()}} if tuned else {}
    record_request(
        session.store.root,
        "comparison",
        recipe.dataset,
        asked_options(session.options, seeds, **more),
        [job.id for job in plan],
        _budgets(plan, tuned_by),
    )
    if session.options.plan_only:
        planned(plan, session.store, say)
        show_commands(plan, state, session.setting, as_json=session.options.as_json)
        return Ended(broken=broken)
    ended = carry_out(session, plan, columns)
    return replace(ended, broken=broken)


def _shown(plan: Sequence[Job]) -> list[str]:
    return [job.id for job in plan if job.shown]


def _budgets(plan: Sequence[Job], tuned: Mapping[tuple[str, FeatureType], Tuned]) -> dict[str, Any]:
    """Return {METHOD:TYPE: how it was tuned} of the rows of a plan."""
    method_of, found = {job.id: job.spec.method.name for job in plan}, {}
    for job in plan:
        # What is re-ranked was tuned as its bases; the first of them that was says how.
        names = [method_of[job_id] for job_id in (job.id, *job.spec.bases)]
        entry = next((tuned[name, job.spec.type] for name in names if (name, job.spec.type) in tuned), None)
        if entry is not None:
            budget = Budget(trials=entry.configurations, runs=entry.runs, study=entry.study, ends=entry.ends)
            found[f"{names[0]}:{job.spec.type}"] = budget.model_dump(mode="json", exclude_defaults=True)
    return found


def tuned_params(session: Session, methods: Sequence[Found], file: Path | None) -> dict[tuple[str, FeatureType], Tuned]:
    """Return what tuning found under the recipe's protocol for these methods and those that they re-rank.

    Raises:
        UserError: tuning found nothing, or something that a method does not take.
    """
    recipe, types, runs = session.recipe, session.types, session.options.runs
    known = find_tuned(runs, recipe.dataset) if file is None else read_tuned(file)
    with redirect_stdout(sys.stderr):  # a method may print
        asked = with_bases(methods)
    found = {
        (method, feature_type): entry
        for (protocol, method, feature_type), entry in known.items()
        if protocol == recipe.protocol and method in asked and feature_type in types
    }
    if not found:
        place = file or tuned_file(runs, recipe.dataset)
        folders = folder_options(runs, session.options.data_dir)
        raise UserError(
            f"nothing in {place} was tuned for this; run: hierbench tune --dataset {session.options.dataset}{folders}"
        )
    for (method, feature_type), entry in found.items():
        check_section(with_params(recipe, method, entry.params), asked[method])
        shown = ", ".join(f"{name} {value:g}" for name, value in entry.params.items())
        say(f"tuned: {method} {feature_type}: {shown} ({entry.budget} runs, {entry.date})")
    return found


def carry_out(session: Session, plan: list[Job], columns: Sequence[Column]) -> Ended:
    """Run what is missing of a plan, publish the leaderboard, and return it."""
    options = session.options
    labels = {job.id: job.spec.label for job in plan}

    def publish(mirror: Mirror) -> Ended:
        return publish_board(options, _shown(plan), columns, mirror)

    # Method names, not file paths: a path reveals the user's folders, and MLflow may be shared.
    names = [Path(name).stem if is_path(name) else name for name in names_asked(options)]
    ended, failures = session.carry_out(plan, ",".join(names), labels, publish)
    return replace(ended, failures=failures)
