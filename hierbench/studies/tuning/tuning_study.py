"""`hierbench tune`: search hyperparameters and rates by validation hierdist@1; the test set is never opened."""

import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from sys import stderr
from typing import Any, NamedTuple

from optuna.trial import TrialState

from hierbench.api.method import PostHoc, base_names
from hierbench.api.registry import HIDDEN, LoadedMethod
from hierbench.config.options import Options
from hierbench.config.sections import FeatureType
from hierbench.config.tuned_values import Tuned, tuned_file, write_tuned
from hierbench.execution.estimate import estimate
from hierbench.execution.plan import find_methods, requested_methods, with_bases
from hierbench.execution.resources import make_setting
from hierbench.execution.session import Execution, Session
from hierbench.leaderboard.statistics import Cell
from hierbench.leaderboard.table import Interval, Line, Number, Shown, Table, Text
from hierbench.runs.job import Job, JobState
from hierbench.runs.mlflow_mirror import Mirror, sqlite_uri
from hierbench.runs.requests import Budget, extend_request
from hierbench.studies.dry_run import describe, say_notes
from hierbench.studies.study import Study, carry_out
from hierbench.studies.tuning.batches import Batches, format_params
from hierbench.studies.tuning.search import (
    OBJECTIVE,
    Search,
    Space,
    Target,
    TrialRecord,
    of_search,
    search_space,
    without_password,
)
from hierbench.utils.console import duration, say
from hierbench.utils.errors import UserError


def tune(options: Options, storage: str | None, sampler: str | None, trials: int | None, output: Path | None) -> Shown:
    """Run the command and return the ranking; the exit code is 0, or 1 where a run failed."""
    return carry_out(Tuning(storage, sampler, trials, output), options)


class Ranked(NamedTuple):
    """A search that has ended, its complete trials, best first, and the winner."""

    target: Target
    results: list[tuple[dict[str, Any], Cell]]
    best: Tuned


class Tuning(Study):
    """A search for each method on each type of model, one after another."""

    kind = "tuning"

    def __init__(self, storage: str | None, sampler: str | None, trials: int | None, output: Path | None) -> None:
        self.storage, self.sampler, self.trials, self.output = storage or "", sampler, trials, output
        self.ended = list[Ranked]()
        self.current: Batches | None = None

    def open(self, session: Session) -> None:
        """Find the methods and the search space of each."""
        options, names = session.options, requested_methods(session.options)
        self.sampler = self.sampler or session.recipe.tune.sampler
        if options.executor == "ray" and self.sampler == "tpe":
            raise UserError("--sampler tpe runs on this machine only; --executor ray takes --sampler grid")
        if self.sampler == "tpe":
            self.trials = self.trials or session.recipe.tune.trials
        with redirect_stdout(stderr):
            methods, num_broken = find_methods(names)
            bases = with_bases(methods)  # methods that are only bases are not named by users
        self.failed = num_broken > 0
        chosen_names = {method.name for method in methods}
        methods += [base for name, base in bases.items() if name not in chosen_names and HIDDEN.fullmatch(name)]
        methods, self.searches = _find_searches(session, methods, names, self.sampler, self.trials)
        self.storage = self.storage or sqlite_uri(options.runs / "optuna.db", "give --storage URL")
        session.open(methods)
        self.recipe = of_search(session.recipe)

    def plan(self, session: Session) -> list[Job]:
        """Return nothing: the jobs follow from the results."""
        return []

    def announce(self, session: Session, plan: Sequence[Job], state: dict[str, JobState]) -> Table | None:
        """Set where the searches run; a dry run ends with the search spaces."""
        runs, inputs = self.recipe.tune.runs, session.inputs
        types = [feature_type for _, feature_type, space in self.searches for _ in range(space.trials * runs)]
        session.setting = make_setting(session.options, len(types), weights=inputs.weights)
        if inputs.prepared is not None and not session.options.dry_run:
            say_notes(inputs.prepared)
            return None
        rows = []
        for method, feature_type, space in self.searches:
            values = "; ".join(f"{key} {', '.join(f'{x:g}' for x in points)}" for key, points in space.grid.items())
            words = [method.name, feature_type, str(space.trials), str(runs), values]
            rows.append(Line(list(map(Text, words))))
        needed = estimate(self.recipe, types, inputs, session.setting)
        notes = [describe(extraction, self.recipe) for extraction in needed.extractions]
        if needed.seconds:
            time = duration(needed.seconds)
            notes.append(f"About {time} on this machine ({session.options.device}), less for cached configurations.")
        if inputs.missing or inputs.needed:
            notes.append(f"Blocked: {inputs.missing}." if inputs.missing else f"First: {inputs.needed}.")
        columns = ["Method", "Type", "Configurations", "Runs of each", "Values"]
        return Table(f"{session.recipe.title}, the searches", columns, rows, notes=notes)

    def request_details(
        self, session: Session, plan: Sequence[Job]
    ) -> tuple[Mapping[str, Any], Sequence[str], Mapping[str, Any]]:
        """Return how it is searched; jobs and budgets are added as they follow."""
        more = {"seeds": self.recipe.tune.runs, "sampler": self.sampler, "trials": self.trials}
        return {name: value for name, value in more.items() if value is not None}, [], {}

    def title(self, session: Session) -> str:
        """Return "tune", and the methods."""
        return f"tune {','.join(dict.fromkeys(method.name for method, *_ in self.searches))}"

    def label(self, job: Job) -> str:
        """Return the configuration of a job, and its seed."""
        assert self.current is not None
        return self.current.labels[job.id]

    def is_over(self, job: Job) -> bool:
        """Whether a job is the first of a trial that is pruned."""
        return self.current is not None and self.current.is_over(job)

    def on_end(self, job: Job) -> None:
        """End the trial of a job if it was the last."""
        if self.current is not None:
            self.current.on_end(job)

    def steps(self, session: Session, plan: list[Job], execution: Execution) -> Iterator[list[Job]]:
        """Yield the jobs of one batch of trials after another, and write down each search's winner."""
        prepared, assert_sampler = session.inputs.prepared, self.sampler
        assert prepared is not None and assert_sampler is not None
        runs, epochs = self.recipe.tune.runs, self.recipe.train.epochs
        execution.meter.expect(float(sum(space.trials * runs * epochs for *_, space in self.searches)))
        for method, feature_type, space in self.searches:
            target = Target(self.recipe, prepared, method, feature_type, session.inputs.digest)
            name = target.study(space, assert_sampler)
            record, search = (
                TrialRecord(self.storage, name, session.options.runs),
                Search(space, assert_sampler, target.start(space)),
            )
            done = sum(trial.state in (TrialState.COMPLETE, TrialState.PRUNED) for trial in record.trials())
            where = f"study {name!r} in {without_password(self.storage)}"
            say(f"{target.label}: {space.trials} configurations x {runs} runs, {done} done; {where}")
            row, budget = f"{method.name}:{feature_type}", Budget(trials=space.trials, runs=runs, study=name)
            request = extend_request(session.store.root, self.request, budget={row: budget.model_dump()})
            self.current = Batches(target, search, record, execution, request)
            yield from self.current.steps()
            best = winner(search, name, runs)
            if best is None:
                say(f"{target.label}: no configuration was completed")
                self.failed = True
                continue
            if best.ends:
                extend_request(session.store.root, request, budget={row: {"ends": best.ends}})
            write_tuned(self.file(session), {(self.recipe.protocol, method.name, feature_type): best})
            self.ended.append(Ranked(target, search.results(), best))

    def file(self, session: Session) -> Path:
        """Return the file of the winners."""
        return self.output or tuned_file(session.options.runs, self.recipe.dataset)

    def table(self, session: Session, mirror: Mirror | None) -> Table | None:
        """Return the ranking of each search."""
        return ranking_table(self.ended, self.file(session)) if self.ended else None

    def closing_lines(self, session: Session) -> list[str]:
        """Return how to look at the studies."""
        return [f"browse: uvx optuna-dashboard {shlex.quote(without_password(self.storage))}"]


def _find_searches(
    session: Session, methods: Sequence[LoadedMethod], names: Sequence[str], sampler: str, trials: int | None
) -> tuple[list[LoadedMethod], list[tuple[LoadedMethod, FeatureType, Space]]]:
    """Return the methods that have a search space, and the spaces of each by type; TPE gives all as many trials."""
    # Methods without anything to tune are left out; one that --set names, or all that are named, must have something.
    recipe = session.recipe
    if sampler == "grid" and trials is not None:
        raise UserError("--trials is for --sampler tpe; a grid has as many as it has points")
    spaces, notes = list[tuple[LoadedMethod, Space]](), list[str]()
    for method in methods:
        if (space := search_space(recipe, method) if method.trains else None) is not None:
            spaces.append((method, space))
            continue
        hint = f"its learning rates are searched with --set tune.grid.{method.name}.lr.classifier=[0.01,0.1]"
        if issubclass(method.cls, PostHoc):
            hint = f"it re-ranks {' and '.join(base_names(method.cls))}, which can be tuned"
        if HIDDEN.fullmatch(method.name) and method.name not in names:
            continue
        if method.name in recipe.tune.grid or len(methods) == 1:
            raise UserError(f"{method.name} has no hyperparameters to tune; {hint}")
        notes.append(f"note: {method.name} has nothing to tune and is left out; {hint}")
    if not spaces:
        raise UserError("nothing to tune; give learning rates, as in --set tune.grid.all.lr.classifier=[0.01,0.1]")
    budget = trials or max(space.trials for _, space in spaces)
    searches: list[tuple[LoadedMethod, FeatureType, Space]] = []
    idle = "no parameters with the rate of a backbone that is frozen"
    for method, whole_space in spaces:
        for feature_type in method.cls.types:
            if feature_type not in session.types:
                continue
            if (space := whole_space.of(recipe.model, feature_type)) is None:
                notes.append(f"note: {method.name} {feature_type} is left out: it has {idle}")
            else:
                own_trials = len(space.points) if sampler == "grid" else budget
                searches.append((method, feature_type, replace(space, trials=own_trials)))
    if not searches and any(note.endswith(idle) for note in notes):  # else the types do not fit: `Session.open` says so
        raise UserError(f"nothing to tune: type-I has {idle}")
    for note in notes:
        say(note)
    return [method for method, _ in spaces], searches


def winner(search: Search, study: str, runs: int) -> Tuned | None:
    """Return the best configuration and how sure it is, or None if no configuration was completed."""
    results = search.results()
    if not results:
        return None
    (params, best), (second, runner_up) = (*results, ({}, Cell(None, None)))[:2]
    assert best.mean is not None
    separated = False
    if runner_up.mean is not None and best.ci95 is not None and runner_up.ci95 is not None:
        separated = runner_up.mean - best.mean > best.ci95 + runner_up.ci95
    return Tuned(
        params=params,
        study=study,
        date=time.strftime("%Y-%m-%d", time.gmtime()),
        sampler=search.sampler,
        trials=len(results),
        pruned=sum(trial.state == TrialState.PRUNED for trial in search.trials()),
        runs=runs,
        mean=best.mean,
        ci95=best.ci95,
        runner_up=second,
        runner_up_mean=runner_up.mean,
        runner_up_ci95=runner_up.ci95,
        separated=separated,
        ends=search.space.ends_near(params),
    )


def ranking_table(searches: Sequence[Ranked], file: Path) -> Table:
    """Return the configurations of each search, best first, and below them the values chosen and written to `file`."""
    names = dict.fromkeys(name for ranked in searches for params, _ in ranked.results for name in params)
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
    why = "its interval overlaps the next one's" if best.runs > 1 else "one run each has no interval"
    certain = "" if best.separated else f"; {why}, so the choice may be due to chance"
    ends = f"; at an end of its range: {', '.join(best.ends)}" if best.ends else ""
    return f"{target.label}: {format_params(best.params)} ({best.budget} runs){certain}{ends}; written to {file}"
