"""`hierbench run`: plan, prepare, train, re-rank, and publish the leaderboard."""

import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path

from hierbench.api.registry import Broken, Found, find_all, find_or_broken
from hierbench.config.options import Options, is_path
from hierbench.config.recipe import FeatureType
from hierbench.config.tuned import Tuned, find_tuned, read_tuned, tuned_file
from hierbench.execution.scheduler import planned, states
from hierbench.execution.standalone import show_commands
from hierbench.experiments.plan_cache import plan_writer
from hierbench.experiments.publishing import publish_board, show_board
from hierbench.experiments.session import Session
from hierbench.leaderboard.board import Board
from hierbench.planning.dry_run import blocked_lines, costs, lines_of_plan
from hierbench.planning.plan import make_plan
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
    session = Session(options)
    asked = session.recipe
    with redirect_stdout(sys.stderr):
        methods, broken = _methods(_asked(session))
    session.check(methods)
    tuned_by = tuned_params(session, methods, file) if tuned else {}
    inputs, types = session.open(), session.types
    models = partial(costs, session.recipe, methods, types)
    if inputs.prepared is None:
        session.announce(blocked_lines(methods, types, session.num_seeds), models)
        return 0
    cache_plan = (lambda plan: None) if tuned or broken else plan_writer(options, asked)
    params = {key: entry.params for key, entry in tuned_by.items()}
    plan = make_plan(session.recipe, inputs.prepared, methods, types, session.num_seeds, inputs.digest, params)
    state = states(plan, session.store)
    if not session.announce(lines_of_plan(plan, state), models):
        return 0
    if session.options.plan_only:
        planned(plan, session.store, say)
        show_commands(plan, state, session.setting, as_json=session.options.as_json)
        return 1 if broken else 0
    failed = carry_out(session, plan, tuned_by)
    if not failed:
        cache_plan(plan)
    return 1 if failed or broken else 0


def tuned_params(session: Session, methods: Sequence[Found], file: Path | None) -> dict[tuple[str, FeatureType], Tuned]:
    """Return what tuning found for these methods under the recipe's protocol.

    Raises:
        UserError: tuning found nothing, or hyperparameters that a method does not take.
    """
    recipe, types, runs = session.recipe, session.types, session.options.runs
    known = find_tuned(runs, recipe.dataset) if file is None else read_tuned(file)
    asked = {found.name: found for found in methods}
    found = {
        (method, feature_type): entry
        for (protocol, method, feature_type), entry in known.items()
        if protocol == recipe.protocol and method in asked and feature_type in types
    }
    if not found:
        place = file or tuned_file(runs, recipe.dataset)
        raise UserError(
            f"nothing in {place} was tuned for this; run: hierbench tune --dataset {session.options.dataset}"
        )
    for (method, feature_type), entry in found.items():
        asked[method].params(recipe.params_of(method) | entry.params)
        shown = ", ".join(f"{name} {value:g}" for name, value in entry.params.items())
        say(f"tuned: {method} {feature_type}: {shown} ({entry.budget} runs, {entry.date})")
    return found


def carry_out(session: Session, plan: list[Job], tuned: Mapping[tuple[str, FeatureType], Tuned]) -> dict[str, str]:
    """Run what is missing of a plan and publish the leaderboard; return {id: error} of what failed."""
    options, setting = session.options, session.setting
    labels = {job.id: job.spec.label for job in plan}

    def publish() -> tuple[Board, Path]:
        for job in plan:
            (setting.runs / job.id / "ablation.json").unlink(missing_ok=True)  # it was asked for as a row
            if (entry := tuned.get((job.spec.method.name, job.spec.type))) is not None:
                budget = {"trials": entry.trials + entry.pruned, "runs": entry.runs, "study": entry.study}
                write_json(setting.runs / job.id / "tuning.json", budget)
        return publish_board(options.dataset, options.runs, [job.id for job in plan if job.shown])

    # Named as methods are, not as files: a path says where this user's things are, and MLflow may be shared.
    names = [Path(name).stem if is_path(name) else name for name in _asked(session)]
    board, failed = session.carry_out(plan, ",".join(names), labels, publish)
    show_board(board, options)
    session.say_failures(failed, labels)
    return failed


def _methods(names: Sequence[str]) -> tuple[list[Found], int]:
    """Return the methods asked for, and how many cannot be imported: those are reported and left out."""
    found = [item for name in names for item in (find_all() if name == "all" else [find_or_broken(name)])]
    methods = {item.name: item for item in found if isinstance(item, Found)}
    broken = [item for item in found if isinstance(item, Broken)]
    if not methods:
        reasons = "; ".join(item.reason for item in broken)
        raise UserError(reasons or "--methods names no method; use all, or names separated by commas")
    for item in broken:
        say(f"warning: {item.reason}; it is left out")
    return list(methods.values()), len(broken)


def _asked(session: Session) -> list[str]:
    names = session.options.methods.split(",")
    return list(dict.fromkeys(name.strip() for name in names if name.strip()))
