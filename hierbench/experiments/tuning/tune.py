"""`hierbench tune`: search a method's hyperparameters by validation hierdist@1; the test set is never opened."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from sys import stderr
from typing import Any

from optuna.trial import FrozenTrial, Trial, TrialState

from hierbench.api.method import Method
from hierbench.api.registry import Found, find_method
from hierbench.config.options import Options
from hierbench.config.recipe import FeatureType, Recipe
from hierbench.config.tuned import Tuned, tuned_file, write_tuned
from hierbench.experiments.publishing import say_notes
from hierbench.experiments.session import Execution, Session
from hierbench.experiments.tuning.study import OBJECTIVE, Record, Search, Space, Target, database_errors, search_space
from hierbench.leaderboard.statistics import summarise
from hierbench.planning.dry_run import time_to_train
from hierbench.planning.resources import make_setting
from hierbench.runs.job import Job
from hierbench.runs.mlflow_mirror import sqlite_uri
from hierbench.runs.repair import is_finished
from hierbench.runs.store import HistoryRow
from hierbench.utils.console import duration, say
from hierbench.utils.errors import UserError


def tune(options: Options, storage: str | None, sampler: str, trials: int | None, output: Path | None) -> int:
    """Run the command and return its exit code: 0, or 1 where a run failed."""
    session = Session(options)
    with redirect_stdout(stderr):
        methods = [find_method(name.strip()) for name in options.methods.split(",") if name.strip()]
    session.check(methods)
    runs, folder = session.recipe.tune.runs, session.options.runs
    spaces = _spaces(session.recipe, methods, sampler, trials)
    storage = storage or sqlite_uri(folder / "optuna.db", "give --storage URL")
    pairs = [(found, kind) for found in methods for kind in found.cls.types if kind in session.types]
    kinds = [kind for found, kind in pairs for _ in range(spaces[found.name].trials * runs)]
    inputs, recipe = session.open(), session.recipe
    session.setting = make_setting(session.options, len(kinds), weights=inputs.weights)
    if session.options.dry_run or inputs.prepared is None:
        for found, kind in pairs:
            _say_space(spaces[found.name], found.name, kind, runs)
        seconds = time_to_train(recipe, kinds, inputs.prepared, session.setting)
        if seconds:
            say(f"at least {duration(seconds)} on this machine ({session.options.device}), less what is cached")
        if inputs.missing:
            say(f"blocked: {inputs.missing}")
        return 0
    say_notes(inputs.prepared)
    file = output or tuned_file(folder, recipe.dataset)
    failed = False
    for found, kind in pairs:
        target = Target(recipe, inputs.prepared, found, kind, inputs.digest)
        with database_errors(storage):
            failed |= _tune_one(session, target, spaces[found.name], sampler, storage, file)
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


@dataclass(frozen=True)
class Configuration:
    """A trial and its runs."""

    trial: Trial
    jobs: list[Job]


class Tuning:
    """The search of one method on one type of model.

    Args:
        target: what is tuned.
        search: chooses the configurations.
        record: where their results are recorded.
        execution: runs them.
    """

    def __init__(self, target: Target, search: Search, record: Record, execution: Execution) -> None:
        self.target, self.search, self.record, self.execution = target, search, record, execution
        self.store = execution.setting.store
        self.labels: dict[str, str] = {}
        self.ended: set[int] = set()

    def run(self) -> None:
        """Try every configuration of the search."""
        while trials := self.search.next():
            self._try([Configuration(trial, self.target.jobs(trial.params)) for trial in trials])

    def _try(self, batch: Sequence[Configuration]) -> None:
        configuration_of = {job.id: configuration for configuration in batch for job in configuration.jobs}
        for configuration in batch:
            text = f"{self.target.label} {shown(configuration.trial.params)}"
            self.labels |= {job.id: f"{text} seed {job.spec.seed}" for job in configuration.jobs}
            self._count(job for job in configuration.jobs if is_finished(job.spec, self.store))
        going_on = batch
        if self.search.sampler == "tpe":
            first = [configuration.jobs[0] for configuration in batch]
            self.execution.run(first, self.labels, is_over=lambda job: self._is_worse(configuration_of[job.id]))
            going_on = [
                item for item in batch if not self._is_worse(item) and item.jobs[0].id not in self.execution.failed
            ]
        plan = [job for configuration in going_on for job in configuration.jobs]
        self.execution.run(plan, self.labels, lambda job: self._end_if_complete(configuration_of[job.id]))
        for configuration in batch:
            self._end(configuration)

    def _is_worse(self, configuration: Configuration) -> bool:
        job = configuration.jobs[0]
        try:
            history: list[HistoryRow] = self.store.run(job.id).history()
        except (OSError, UserError):  # its first epoch is not over
            history = []
        return self.search.is_worse(configuration.trial, history, job.spec.train.epochs)

    def _end_if_complete(self, configuration: Configuration) -> None:
        if all(is_finished(job.spec, self.store) for job in configuration.jobs):
            self._end(configuration)

    def _end(self, configuration: Configuration) -> None:
        """End a configuration, record and show its result, once."""
        trial, runs = configuration.trial, [job.id for job in configuration.jobs]
        if trial.number in self.ended:
            return
        self.ended.add(trial.number)
        self._count(configuration.jobs)  # also those that will not run
        if self.search.trials()[trial.number].state == TrialState.RUNNING:  # not pruned
            errors = [self.execution.failed[run] for run in runs if run in self.execution.failed]
            values = [] if errors else [self.store.run(run).metrics()["val"][OBJECTIVE] for run in runs]
            self.search.end(trial, values, *errors[:1])
        frozen = self.search.trials()[trial.number]
        if not self.record.add(frozen, runs):  # by an earlier command, or another one that is running
            return
        text = f"{self.target.label} {shown(trial.params)}"
        if frozen.state == TrialState.PRUNED:
            self.execution.meter.say(f"{text}: stopped after epoch {frozen.last_step}")
        elif frozen.state == TrialState.COMPLETE:
            self.execution.meter.say(f"{text}: validation {OBJECTIVE} {frozen.value:.4f}")

    def _count(self, jobs: Iterable[Job]) -> None:
        for job in jobs:
            self.execution.count(job, self.labels[job.id])


def _tune_one(session: Session, target: Target, space: Space, sampler: str, storage: str, file: Path) -> bool:
    """Carry out one search, write the winner, and return whether a run failed."""
    name, runs, epochs = target.study(space, sampler), target.recipe.tune.runs, target.recipe.train.epochs
    record, search = Record(storage, name, session.options.runs), Search(space, sampler)
    done = sum(trial.state in (TrialState.COMPLETE, TrialState.PRUNED) for trial in record.trials())
    say(f"{target.label}: {space.trials} configurations x {runs} runs, {done} done; study {name!r} in {storage}")
    work = float(space.trials * runs * epochs)
    with (
        redirect_stdout(stderr),  # a method may print; results alone go to standard output
        Execution(session, f"tune {target.label}", work) as execution,
    ):
        Tuning(target, search, record, execution).run()
    best = winner(search, name, runs)
    if best is None:
        say(f"{target.label}: no configuration was tried to its end")
        return True
    write_tuned(file, {(target.recipe.protocol, target.found.name, target.type): best})
    _show(target, search, best, file)
    return bool(execution.failed)


def winner(search: Search, study: str, runs: int) -> Tuned | None:
    """Return the best configuration and how sure it is, None if none was tried to its end."""
    finished = search.finished()
    if not finished:
        return None
    cells = [summarise(trial.user_attrs["values"]) for trial in finished[:2]]
    means, widths = [cell.mean for cell in cells], [cell.ci95 for cell in cells]
    assert means[0] is not None
    separated = False
    if len(cells) == 2 and widths[0] is not None and widths[1] is not None:
        separated = (means[1] or 0.0) - means[0] > widths[0] + widths[1]
    return Tuned(
        params=_params(finished[0]),
        study=study,
        date=time.strftime("%Y-%m-%d", time.gmtime()),
        sampler=search.sampler,
        trials=len(finished),
        pruned=sum(trial.state == TrialState.PRUNED for trial in search.trials()),
        runs=runs,
        mean=means[0],
        ci95=widths[0],
        runner_up=_params(finished[1]) if len(cells) == 2 else {},
        runner_up_mean=means[-1] if len(cells) == 2 else None,
        runner_up_ci95=widths[-1] if len(cells) == 2 else None,
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


def shown(params: Mapping[str, Any]) -> str:
    """Return hyperparameters as users see them."""
    return ", ".join(f"{name} {value:g}" for name, value in params.items())


def _params(trial: FrozenTrial) -> dict[str, float]:
    return {name: float(value) for name, value in trial.params.items()}
