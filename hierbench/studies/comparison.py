"""The comparison behind `hierbench run`: rows are trained and re-ranked where missing, and ranked in a leaderboard."""

import shlex
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from hierbench.api.registry import LoadedMethod
from hierbench.config.options import Options, folder_options, is_path
from hierbench.config.sections import FeatureType
from hierbench.config.tuned_values import Tuned, find_tuned, read_tuned, tuned_file
from hierbench.execution.plan import check_section, find_methods, make_plan, requested_methods, with_bases, with_params
from hierbench.execution.session import Session
from hierbench.leaderboard.board import Board
from hierbench.leaderboard.columns import PAPER, Column, check_columns
from hierbench.leaderboard.extra_columns import with_columns
from hierbench.leaderboard.formats import render
from hierbench.leaderboard.open_board import requested_records
from hierbench.leaderboard.table import Shown, Table
from hierbench.runs.job import Job, JobState
from hierbench.runs.mlflow_mirror import Mirror, default_uri, page_of_runs
from hierbench.runs.requests import Budget, Kind
from hierbench.studies.dry_run import announce, count_model_parameters, lines_of_plan, lines_without_data
from hierbench.studies.study import Study, carry_out
from hierbench.utils.console import say
from hierbench.utils.errors import UserError
from hierbench.utils.files import write_text

AGAIN = "; remove its folder to train it again"


@dataclass(frozen=True)
class ComparisonResult:
    """A comparison's leaderboard, None where nothing was to run, as in a dry run; and its output."""

    board: Board | None
    shown: Shown


def compare(
    options: Options,
    *,
    tuned: bool = False,
    file: Path | None = None,
    columns: Sequence[Column] = PAPER,
) -> ComparisonResult:
    """Run the missing jobs and return the leaderboard, or nothing for a dry run.

    Args:
        options: of the command.
        tuned: use the hyperparameters that tuning found, for the methods where it found any.
        file: holds them; None for those in the runs folder and those shipped.
        columns: of the leaderboard.
    """
    study = Comparison(columns, tuned, file)
    shown = carry_out(study, options)
    return ComparisonResult(study.board, shown._replace(code=1) if study.num_broken and not options.dry_run else shown)


class Comparison(Study):
    """Methods on types of models, by seed."""

    kind: Kind | None = "comparison"

    def __init__(self, columns: Sequence[Column], tuned: bool, file: Path | None) -> None:
        self.columns, self.is_tuned, self.file = columns, tuned, file
        self.board: Board | None = None
        self.tuned: dict[tuple[str, FeatureType], Tuned] = {}

    def open(self, session: Session) -> None:
        """Find the methods and their tuned hyperparameters; a runs folder that is closed may hold all runs."""
        with redirect_stdout(sys.stderr):
            self.methods, self.num_broken = find_methods(requested_methods(session.options))
        self.tuned = tuned_params(session, self.methods, self.file) if self.is_tuned else {}
        prepared = session.open(self.methods, may_be_closed=True).prepared
        if prepared is not None:
            check_columns(self.columns, prepared.hierarchy(session.recipe.distance))

    def plan(self, session: Session) -> list[Job]:
        """Return a job for each method, type and seed, and for their bases."""
        inputs, params = session.inputs, {key: entry.params for key, entry in self.tuned.items()}
        assert inputs.prepared is not None
        plan = make_plan(
            session.recipe, inputs.prepared, self.methods, session.types, session.num_seeds, inputs.digest, params
        )
        self.ids = [job.id for job in plan if job.shown]
        if inputs.closed and (session.options.plan_only or set(self.states(session, plan).values()) != {"cached"}):
            raise UserError(inputs.closed)
        return plan

    def announce(self, session: Session, plan: Sequence[Job], state: dict[str, JobState]) -> Table | None:
        """Report a line per job, or per row and seed, and the sizes of the models."""
        trained = list(with_bases(self.methods).values())  # bases that are no rows of their own are trained, too
        lines = lines_of_plan(plan, state)
        if not plan:
            lines = lines_without_data(trained, session.types, session.num_seeds, session.inputs.missing)
        return announce(session, lines, partial(count_model_parameters, session.recipe, trained, session.types))

    def title(self, session: Session) -> str:
        """Return the methods by name: a path reveals the user's folders, and MLflow may be shared."""
        return ",".join(Path(name).stem if is_path(name) else name for name in requested_methods(session.options))

    def request_details(
        self, session: Session, plan: Sequence[Job]
    ) -> tuple[Mapping[str, Any], Sequence[str], Mapping[str, Any]]:
        """Return the tuned values, the jobs, and the budgets of rows."""
        tuned = {f"{method}:{kind}": entry.params for (method, kind), entry in self.tuned.items()}
        return {"tuned": tuned} if self.is_tuned else {}, [job.id for job in plan], _budgets(plan, self.tuned)

    def table(self, session: Session, mirror: Mirror | None) -> Table | None:
        """Return the leaderboard of the runs; with a mirror it is also written, and attached there."""
        options = session.options
        board = Board.of(options.dataset, requested_records(options.runs, self.ids, AGAIN), self.ids)
        board = with_columns(board, self.columns, options.data_dir)
        self.board, table = board, board.table
        if mirror is not None:
            file = options.runs / f"leaderboard-{board.dataset}.md"
            write_text(file.with_suffix(".json"), render(table, "json"))
            write_text(file, render(table))
            means = {
                f"{column.name}/{row.type} {row.title}": mean
                for column in board.columns
                for row in board.rows
                if column.name in row.metrics and (mean := row.metrics[column.name].mean) is not None
            }
            mirror.attach(file, means)
        return table

    def closing_lines(self, session: Session) -> list[str]:
        """Return where the results are."""
        return [] if self.board is None else _places(self.board, session.options)


def _places(board: Board, options: Options) -> list[str]:
    """Return lines that say where the results are."""
    lines = [f"\ntables: {options.runs}/leaderboard-{board.dataset}.md and .json; runs: {options.runs}/<id>/"]
    uri = options.mlflow or default_uri(options.runs)
    if address := page_of_runs(options.runs, uri, [run for row in board.rows for run in row.runs]):
        if uri.startswith("sqlite:///"):  # from any folder and shell: mlflow may not be on the path
            place = Path(uri.removeprefix("sqlite:///")).resolve()
            command = [sys.executable, "-m", "mlflow", "ui", "--backend-store-uri", f"sqlite:///{place}"]
            lines.append(f"serve:  {shlex.join(command)}")
        lines.append(f"browse: {address}")
    return lines


def _budgets(plan: Sequence[Job], tuned: Mapping[tuple[str, FeatureType], Tuned]) -> dict[str, Any]:
    """Return {METHOD:TYPE: how it was tuned} of the rows of a plan."""
    method_of, budgets = {job.id: job.spec.method.name for job in plan}, {}
    for job in plan:
        # A re-ranked row has the tuning of its bases: of the first that was tuned.
        names = [method_of[job_id] for job_id in (job.id, *job.spec.bases)]
        entry = next((tuned[name, job.spec.type] for name in names if (name, job.spec.type) in tuned), None)
        if entry is not None:
            budget = Budget(trials=entry.configurations, runs=entry.runs, study=entry.study, ends=entry.ends)
            budgets[f"{names[0]}:{job.spec.type}"] = budget.model_dump(mode="json", exclude_defaults=True)
    return budgets


def tuned_params(
    session: Session, methods: Sequence[LoadedMethod], file: Path | None
) -> dict[tuple[str, FeatureType], Tuned]:
    """Return the tuned hyperparameters under the recipe's protocol for these methods and their bases.

    Raises:
        UserError: tuning found nothing, or something that a method does not take.
    """
    recipe, types, runs = session.recipe, session.types, session.options.runs
    tuned = find_tuned(runs, recipe.dataset) if file is None else read_tuned(file)
    with redirect_stdout(sys.stderr):  # a method may print
        wanted_methods = with_bases(methods)
    entries = {
        (method, feature_type): entry
        for (protocol, method, feature_type), entry in tuned.items()
        if protocol == recipe.protocol and method in wanted_methods and feature_type in types
    }
    if not entries:
        place = file or tuned_file(runs, recipe.dataset)
        folders = folder_options(runs, session.options.data_dir)
        raise UserError(
            f"nothing in {place} was tuned for this; run: hierbench tune --dataset {session.options.dataset}{folders}"
        )
    for (method, feature_type), entry in entries.items():
        check_section(with_params(recipe, method, entry.params), wanted_methods[method])
        shown = ", ".join(f"{name} {value:g}" for name, value in entry.params.items())
        say(f"tuned: {method} {feature_type}: {shown} ({entry.budget} runs, {entry.date})")
    return entries
