"""A search over hyperparameters in an Optuna study that several processes and machines may share.

Every trial is a configuration; its value is decided outside. A trial belongs to one process from the moment it is
handed out; what a dead process leaves is handed out again, and of two trials of one grid point only the first counts.
"""

from __future__ import annotations

import os
import platform
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import product
from typing import Any

import optuna
from optuna.exceptions import StorageInternalError, UpdateFinishedTrialError
from optuna.storages import RDBStorage, fail_stale_trials
from optuna.trial import FrozenTrial, Trial, TrialState
from sqlalchemy.exc import SQLAlchemyError

from hierbench.utils.errors import UserError
from hierbench.utils.files import process_is_gone
from hierbench.utils.sqlite import make_database

HEARTBEAT = 20  # seconds between two signs of life; a process without one for six times this is taken for dead
UNOWNED = 10.0  # seconds that a trial may be in nobody's name: between two statements that take milliseconds
LIVE = (TrialState.WAITING, TrialState.RUNNING, TrialState.COMPLETE, TrialState.PRUNED)
Params = dict[str, float]


@dataclass(frozen=True)
class Space:
    """What is searched: a grid {name: values}, or ranges {name: (low, high)} with a number of trials."""

    grid: Mapping[str, Sequence[float]]
    ranges: Mapping[str, tuple[float, float]]
    trials: int

    @property
    def points(self) -> list[Params]:
        """The grid's points, the last hyperparameter fastest."""
        return [dict(zip(self.grid, values, strict=True)) for values in product(*self.grid.values())]


class _Grid(optuna.samplers.GridSampler):
    """Optuna's sampler without its call of `Study.stop`, which is for `Study.optimize` alone."""

    def after_trial(self, *_: Any) -> None:
        """Do nothing: the search knows by itself when the grid is done."""


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Silence that heartbeats are experimental, and that they are recorded here instead of by `Study.optimize`."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
        warnings.filterwarnings("ignore", message="Heartbeat of storage")
        yield


@contextmanager
def database_errors(storage: str) -> Iterator[None]:
    """Turn what a database raises, be it full or gone, into one line."""
    try:
        yield
    except (SQLAlchemyError, StorageInternalError) as error:
        reason = _reason(error.__cause__ or error)
        raise UserError(f"--storage {storage}: {reason}; the trials so far are kept") from None


def _reason(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


class Search:
    """One study.

    Args:
        storage: URL of a database, or path of a SQLite file with `sqlite:///`.
        name: of the study; equal names share their trials.
        space: what is searched.
        sampler: "grid" or "tpe".
    """

    def __init__(self, storage: str, name: str, space: Space, sampler: str) -> None:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self.space, self.sampler = space, sampler
        self.given_up: list[Params] = []  # failed in this process: not tried again before the next command
        self.owner = f"{platform.node()} {os.getpid()}"
        self.last_sign = 0.0
        self._unowned: dict[int, float] = {}  # when this process first saw trials that are in nobody's name
        try:
            engine = {"connect_args": {"timeout": 60}} if storage.startswith("sqlite") else {}
            make_database(storage, lambda uri: RDBStorage(uri).engine.dispose())
            with _without_warnings():
                self.storage = RDBStorage(
                    storage, engine_kwargs=engine, heartbeat_interval=HEARTBEAT, grace_period=6 * HEARTBEAT
                )
            self.study = optuna.create_study(
                storage=self.storage,
                study_name=name,
                direction="minimize",
                load_if_exists=True,
                sampler=_sampler(space, sampler),
                pruner=optuna.pruners.MedianPruner(n_startup_trials=4, n_warmup_steps=1),
            )
        except Exception as error:  # SQLAlchemy and its drivers raise of every kind
            raise UserError(f"--storage {storage}: {_reason(error.__cause__ or error)}") from None

    def trials(self) -> list[FrozenTrial]:
        """Return all trials of the study."""
        return self.study.get_trials(deepcopy=False)

    def next(self) -> Trial | None:
        """Hand out a configuration that nobody has, or None if there is none left."""
        self._release_the_dead()
        while self._is_something_left():
            with _without_warnings():
                trial = self.study.ask()
            try:
                self.storage.record_heartbeat(trial._trial_id)
                self._suggest(trial)
                trial.set_user_attr("owner", self.owner)
            except UpdateFinishedTrialError:
                continue  # this process stood still, and others took it for dead
            if not self._is_superfluous(trial):
                return trial
            self.study.tell(trial, state=TrialState.FAIL)
        return None

    def _suggest(self, trial: Trial) -> None:
        if self.sampler == "grid":
            for name, values in self.space.grid.items():
                trial.suggest_categorical(name, list(values))
        else:
            for name, (low, high) in self.space.ranges.items():
                trial.suggest_float(name, low, high)

    def _is_something_left(self) -> bool:
        trials = self.trials()
        if any(trial.state == TrialState.WAITING for trial in trials):
            return True
        if self.sampler == "tpe":
            return sum(trial.state in LIVE for trial in trials) < self.space.trials - len(self.given_up)
        if len(trials) < len(self.space.points):
            return True  # the grid's sampler hands these out by number, each once
        there = [trial.params for trial in trials if trial.state in LIVE]
        for point in self.space.points:
            if point not in there and point not in self.given_up:
                self.study.enqueue_trial(point)
                return True
        return False

    def _is_superfluous(self, trial: Trial) -> bool:
        """Whether an earlier trial has the point, or the budget is spent: another process was a moment faster."""
        earlier = [other for other in self.trials() if other.number < trial.number and other.state in LIVE]
        if self.sampler == "grid":
            return trial.params in [other.params for other in earlier] or trial.params in self.given_up
        return len(earlier) >= self.space.trials

    def _release_the_dead(self) -> None:
        """Hand out again what processes had that are gone: on this machine at once, elsewhere without sign of life."""
        running = [trial for trial in self.trials() if trial.state == TrialState.RUNNING]
        with _without_warnings():
            fail_stale_trials(self.study)
        for trial in running:
            node, _, pid = str(trial.user_attrs.get("owner", "")).rpartition(" ")
            if (node == platform.node() and process_is_gone(pid)) or self._is_nobodys(trial):
                self._fail(trial.number)
        now = {trial.number: trial.state for trial in self.trials()}
        for trial in running:
            # Of a grid a point that was half written down is found missing by `_is_something_left`.
            whole = len(trial.params) == len(self.space.grid) or self.sampler == "tpe"
            if now[trial.number] == TrialState.FAIL and trial.params and whole:
                self.study.enqueue_trial(trial.params)

    def _is_nobodys(self, trial: FrozenTrial) -> bool:
        """Whether a trial has been without an owner for so long that the process must be dead that made it."""
        if "owner" in trial.user_attrs:
            return False
        return time.monotonic() - self._unowned.setdefault(trial.number, time.monotonic()) > UNOWNED

    def _fail(self, number: int) -> None:
        try:
            self.study.tell(number, state=TrialState.FAIL)
        except ValueError:
            pass  # it has ended in the meantime

    def sign_of_life(self, trials: Sequence[Trial]) -> None:
        """Say now and then that these trials are being worked on."""
        if time.monotonic() - self.last_sign > HEARTBEAT / 2:
            self.last_sign = time.monotonic()
            for trial in trials:
                self.storage.record_heartbeat(trial._trial_id)

    def complete(self, trial: Trial, value: float, values: Sequence[float], runs: Sequence[str]) -> None:
        """End a trial with its value, the runs' values behind it and their ids."""
        with suppress(UpdateFinishedTrialError):  # this process was taken for dead; the point is handed out again
            trial.set_user_attr("values", list(values))
            trial.set_user_attr("runs", list(runs))
            self.study.tell(trial, value, skip_if_finished=True)

    def give_up(self, trial: Trial, reason: str) -> None:
        """End a trial that failed; the next command tries it again."""
        self.given_up.append(dict(trial.params))
        with suppress(UpdateFinishedTrialError):
            trial.set_user_attr("error", reason)
            self.study.tell(trial, state=TrialState.FAIL, skip_if_finished=True)

    def prune(self, trial: Trial) -> None:
        """End a trial that is worse than the median at its epoch."""
        self.study.tell(trial, state=TrialState.PRUNED, skip_if_finished=True)

    def finished(self) -> list[FrozenTrial]:
        """Return the complete trials, best first; equal ones in the order of the grid, or as they were made."""
        points = self.space.points if self.sampler == "grid" else []

        def place(trial: FrozenTrial) -> tuple[float, int]:
            order = points.index(trial.params) if trial.params in points else trial.number
            return float(trial.value if trial.value is not None else "inf"), order

        return sorted((trial for trial in self.trials() if trial.state == TrialState.COMPLETE), key=place)

    def busy_elsewhere(self) -> int:
        """Return how many trials are in other hands."""
        return sum(
            trial.state == TrialState.RUNNING and trial.user_attrs.get("owner") != self.owner for trial in self.trials()
        )


def _sampler(space: Space, sampler: str) -> optuna.samplers.BaseSampler:
    if sampler == "grid":
        return _Grid({name: list(values) for name, values in space.grid.items()}, seed=0)
    return optuna.samplers.TPESampler(seed=0, n_startup_trials=min(10, max(2, space.trials // 2)))


def json_params(trial: FrozenTrial) -> dict[str, Any]:
    """Return a trial's hyperparameters as JSON types."""
    return {name: float(value) for name, value in trial.params.items()}
