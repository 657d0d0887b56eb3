"""`hierbench tune`: search hyperparameters and rates by validation hierdist@1; the test set is never opened."""

import shlex
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from sys import stderr
from typing import Any, NamedTuple

from optuna.trial import Trial, TrialState

from hierbench.api.method import PostHoc, bases_of
from hierbench.api.registry import HIDDEN, Found, method_group
from hierbench.config.options import Options
from hierbench.config.sections import METHOD_GROUPS, FeatureType
from hierbench.config.tuned import Tuned, tuned_file, write_tuned
from hierbench.execution.dry_run import describe, say_notes
from hierbench.execution.estimate import estimate
from hierbench.execution.plan import find_methods, names_asked, with_bases
from hierbench.execution.resources import make_setting
from hierbench.execution.session import Execution, Session
from hierbench.leaderboard.statistics import Cell
from hierbench.leaderboard.table import Interval, Line, Number, Shown, Table, Text
from hierbench.runs.job import Job
from hierbench.runs.mlflow_mirror import sqlite_uri
from hierbench.runs.reading import read_record
from hierbench.runs.repair import is_finished
from hierbench.runs.requests import Budget, Request, asked_options, extend_request, record_request
from hierbench.studies.tuning.study import (
    OBJECTIVE,
    Record,
    Search,
    Space,
    Target,
    of_search,
    search_space,
    without_password,
)
from hierbench.utils.console import duration, say
from hierbench.utils.errors import UserError


def tune(options: Options, storage: str | None, sampler: str | None, trials: int | None, output: Path | None) -> Shown:
    """Run the command and return the ranking; the exit code is 0, or 1 where a run failed."""
    session = Session(options)
    sampler = sampler or session.recipe.tune.sampler
    if options.executor == "ray" and sampler == "tpe":
        raise UserError("--sampler tpe runs on this machine only; --executor ray takes --sampler grid")
    if sampler == "tpe":
        trials = trials or session.recipe.tune.trials
    names = names_asked(options)
    with redirect_stdout(stderr):
        methods, broken = find_methods(names)
        bases = with_bases(methods)  # those that are no methods of their own nobody would name
    asked = {found.name for found in methods}
    methods += [found for name, found in bases.items() if name not in asked and HIDDEN.fullmatch(name)]
    runs, folder = session.recipe.tune.runs, session.options.runs
    methods, searches = _searches(session, methods, names, sampler, trials)
    storage = storage or sqlite_uri(folder / "optuna.db", "give --storage URL")
    types_to_train = [feature_type for _, feature_type, space in searches for _ in range(space.trials * runs)]
    inputs = session.open(methods)
    recipe = of_search(session.recipe)
    session.setting = make_setting(session.options, len(types_to_train), weights=inputs.weights)
    if session.options.dry_run or inputs.prepared is None:
        for found, feature_type, space in searches:
            values = "; ".join(f"{key} {', '.join(f'{x:g}' for x in points)}" for key, points in space.grid.items())
            say(f"{found.name} {feature_type}: {space.trials} configurations x {runs} runs ({values})")
        needed = estimate(recipe, types_to_train, inputs, session.setting)
        for extraction in needed.extractions:
            say(describe(extraction, recipe))
        if needed.seconds:
            say(f"at least {duration(needed.seconds)} on this machine ({session.options.device}), less what is cached")
        if inputs.missing:
            say(f"blocked: {inputs.missing}")
        return Shown(None)
    say_notes(inputs.prepared)
    file = output or tuned_file(folder, recipe.dataset)
    failed, ended = broken > 0, list[Ranked]()
    searched = asked_options(session.options, runs, sampler=sampler, trials=trials)
    request = record_request(session.store.root, "tuning", recipe.dataset, searched)
    for found, feature_type, space in searches:
        target = Target(recipe, inputs.prepared, found, feature_type, inputs.digest)
        ranked, lost = _tune_one(session, target, space, sampler, storage, file, request)
        failed, ended = failed or lost, ended + ranked
    browse = f"browse: uvx optuna-dashboard {shlex.quote(without_password(storage))}"
    return Shown(ranking_table(ended, file) if ended else None, [browse], 1 if failed else 0)


def _searches(
    session: Session, methods: Sequence[Found], names: Sequence[str], sampler: str, trials: int | None
) -> tuple[list[Found], list[tuple[Found, FeatureType, Space]]]:
    """Return the methods that have a space, and what is searched for each on each type.

    With TPE all get the same number of trials. Of `names`, as asked for, "all" and "paper" leave out methods without
    anything to tune; one that is named must have something.
    """
    recipe = session.recipe
    if sampler == "grid" and trials is not None:
        raise UserError("--trials is for --sampler tpe; a grid has as many as it has points")
    spaces, notes = list[tuple[Found, Space]](), list[str]()
    for found in methods:
        if (space := search_space(recipe, found) if found.trains else None) is not None:
            spaces.append((found, space))
            continue
        hint = f"its learning rates are searched with --set tune.grid.{found.name}.lr.classifier=[0.01,0.1]"
        if issubclass(found.cls, PostHoc):
            hint = f"it re-ranks {' and '.join(bases_of(found.cls))}, which can be tuned"
        if HIDDEN.fullmatch(found.name) and found.name not in names:
            continue
        named = found.name in recipe.tune.grid or found.name in {Path(name).stem for name in names}
        if named or not any(found.name in method_group(name) for name in names if name in METHOD_GROUPS):
            raise UserError(f"{found.name} has no hyperparameters to tune; {hint}")
        notes.append(f"note: {found.name} has nothing to tune and is left out; {hint}")
    if not spaces:
        raise UserError("nothing to tune; give learning rates, as in --set tune.grid.all.lr.classifier=[0.01,0.1]")
    budget = trials or max(space.trials for _, space in spaces)
    searches: list[tuple[Found, FeatureType, Space]] = []
    idle = "no parameters with the rate of a backbone that is frozen"
    for found, whole in spaces:
        for feature_type in found.cls.types:
            if feature_type not in session.types:
                continue
            if (space := whole.of(recipe.model, feature_type)) is None:
                notes.append(f"note: {found.name} {feature_type} is left out: it has {idle}")
            else:
                own_trials = len(space.points) if sampler == "grid" else budget
                searches.append((found, feature_type, replace(space, trials=own_trials)))
    if not searches and any(note.endswith(idle) for note in notes):  # else the types do not fit: `Session.open` says so
        raise UserError(f"nothing to tune: type-I has {idle}")
    for note in notes:
        say(note)
    return [found for found, _ in spaces], searches


class Tuning:
    """The search of one method on one type of model."""

    def __init__(self, target: Target, search: Search, record: Record, execution: Execution, request: Request) -> None:
        self.target, self.search, self.record, self.execution = target, search, record, execution
        self.store, self.request = execution.setting.store, request
        self.labels: dict[str, str] = {}
        self._trials: dict[str, Trial] = {}  # by id of a job
        self._jobs: dict[int, list[Job]] = {}  # by number of a trial that has not ended

    def run(self) -> None:
        """Try every configuration of the search."""
        while batch := self.search.next():
            for trial in batch:
                jobs = self._jobs[trial.number] = self.target.jobs(trial.params)
                self._trials |= {job.id: trial for job in jobs}
                self.labels |= {job.id: f"{self._label(trial)} seed {job.spec.seed}" for job in jobs}
                self._count(job for job in jobs if is_finished(job.spec, self.store))
            ids = [job.id for trial in batch for job in self._jobs[trial.number]]
            self.request = extend_request(self.store.root, self.request, ids)
            going_on = batch
            if self.search.sampler == "tpe":
                first = [self._jobs[trial.number][0] for trial in batch]
                self.execution.run(first, self.labels, is_over=self._is_worse)
                going_on = [
                    self._trials[job.id]
                    for job in first
                    if not self._is_worse(job) and job.id not in self.execution.failed
                ]
            plan = [job for trial in going_on for job in self._jobs[trial.number]]
            self.execution.run(plan, self.labels, on_end=self._end_if_complete)
            for trial in batch:
                self._end(trial)

    def _is_worse(self, job: Job) -> bool:
        """Whether the trial of which this is the first run is pruned."""
        run = read_record(self.store.run(job.id).folder)
        history = run.history() if run.epochs_done else []
        return self.search.is_worse(self._trials[job.id], history, job.spec.train.epochs)

    def _end_if_complete(self, job: Job) -> None:
        trial = self._trials[job.id]
        if all(is_finished(run.spec, self.store) for run in self._jobs.get(trial.number, [])):
            self._end(trial)

    def _end(self, trial: Trial) -> None:
        """End a trial, record and show its result."""
        jobs = self._jobs.pop(trial.number, [])
        if not jobs:  # it ended when another command finished the runs that ours waited for
            return
        self._count(jobs)  # also those that will not run
        runs, failed = [job.id for job in jobs], self.execution.failed
        if self.search.trials()[trial.number].state == TrialState.RUNNING:  # not pruned
            errors = [failed[run] for run in runs if run in failed]
            values = (
                [] if errors else [read_record(self.store.run(run).folder).result["val"][OBJECTIVE] for run in runs]
            )
            self.search.end(trial, values, *errors[:1])
        frozen = self.search.trials()[trial.number]
        if not self.record.add(frozen, runs):  # added by an earlier command, or by another that is running
            return
        if frozen.state == TrialState.PRUNED:
            self.execution.meter.say(f"{self._label(trial)}: stopped after epoch {frozen.last_step}")
        elif frozen.state == TrialState.COMPLETE:
            self.execution.meter.say(f"{self._label(trial)}: validation {OBJECTIVE} {frozen.value:.4f}")

    def _label(self, trial: Trial) -> str:
        return f"{self.target.label} {shown(trial.params)}"

    def _count(self, jobs: Iterable[Job]) -> None:
        for job in jobs:
            self.execution.count(job, self.labels[job.id])


class Ranked(NamedTuple):
    """A search that has ended, its complete trials, best first, and the winner."""

    target: Target
    results: list[tuple[dict[str, Any], Cell]]
    best: Tuned


def _tune_one(
    session: Session, target: Target, space: Space, sampler: str, storage: str, file: Path, request: Request
) -> tuple[list[Ranked], bool]:
    """Carry out one search, write the winner, and return it, if there is one, and whether a run failed."""
    name, runs, epochs = target.study(space, sampler), target.recipe.tune.runs, target.recipe.train.epochs
    record, search = Record(storage, name, session.options.runs), Search(space, sampler, target.start(space))
    done = sum(trial.state in (TrialState.COMPLETE, TrialState.PRUNED) for trial in record.trials())
    where = f"study {name!r} in {without_password(storage)}"
    say(f"{target.label}: {space.trials} configurations x {runs} runs, {done} done; {where}")
    budget = Budget(trials=space.trials, runs=runs, study=name)
    row = f"{target.found.name}:{target.type}"
    request = extend_request(session.store.root, request, budget={row: budget.model_dump()})
    work = float(space.trials * runs * epochs)
    with (
        redirect_stdout(stderr),  # a method may print; standard output is for results
        Execution(session, f"tune {target.label}") as execution,
    ):
        execution.meter.expect(work)
        Tuning(target, search, record, execution, request).run()
    best = winner(search, name, runs)
    if best is not None and best.ends:
        extend_request(session.store.root, request, budget={row: {"ends": best.ends}})
    if best is None:
        say(f"{target.label}: no configuration was completed")
        return [], True
    write_tuned(file, {(target.recipe.protocol, target.found.name, target.type): best})
    return [Ranked(target, search.results(), best)], bool(execution.failed)


def winner(search: Search, study: str, runs: int) -> Tuned | None:
    """Return the best configuration and how sure it is, None if none was completed."""
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
    """Return the configurations of each search, best first, and below them what was chosen and written to `file`."""
    names = dict.fromkeys(name for ranked in searches for params, _ in ranked.results for name in params)
    return Table(
        title=f"{searches[0].target.recipe.title}, tuning",
        columns=["Method", "Model", "Rank", *names, f"Validation {OBJECTIVE} ↓"],
        rows=[
            Line(
                [
                    Text(target.found.name),
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
    return f"{target.label}: {shown(best.params)} ({best.budget} runs){certain}{ends}; written to {file}"


def shown(params: Mapping[str, Any]) -> str:
    """Return hyperparameters as users see them."""
    return ", ".join(f"{name} {value:g}" for name, value in params.items())
