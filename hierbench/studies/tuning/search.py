"""A search over hyperparameters and learning rates, and the Optuna study that records it.

A search chooses the same configurations whenever it is started: it runs in memory, and its only input is the results in
the runs folder. So a killed search resumes without training anything twice, and commands that share a runs folder share
the work through the locks of its runs.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import CategoricalDistribution, FloatDistribution
from optuna.storages import RDBStorage
from optuna.trial import FrozenTrial, Trial, TrialState
from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError

from hierbench.api.registry import LoadedMethod
from hierbench.config.rates import PREFIX, RATE_NAMES
from hierbench.config.recipe import Recipe
from hierbench.config.sections import FeatureType, Model
from hierbench.config.spec import json_digest
from hierbench.data.prepared import Prepared
from hierbench.execution.jobs import make_spec, with_params
from hierbench.execution.rate_groups import group_names
from hierbench.leaderboard.statistics import Summary, summarise
from hierbench.runs.job import Job
from hierbench.utils.errors import UserError, foreign_errors
from hierbench.utils.files import make_database
from hierbench.utils.lock import Lock

FIRST_SEED = 1000  # final runs count from 0: a seed that was tuned on is never reported
OBJECTIVE = "hierdist@1"
STARTUP = 6  # configurations that TPE draws at random
TRIALS_PER_BATCH = (
    4  # configurations that TPE chooses at once; not the number of workers, so that all machines choose the same
)
Params = Mapping[str, float]


@dataclass(frozen=True)
class Space:
    """The space of a search: a grid {name: values}, or ranges {name: (low, high)} with a number of trials."""

    grid: Mapping[str, Sequence[float]]
    ranges: Mapping[str, tuple[float, float]]
    trials: int

    @property
    def points(self) -> list[dict[str, float]]:
        """The grid's points, the last hyperparameter fastest."""
        return [dict(zip(self.grid, values, strict=True)) for values in product(*self.grid.values())]

    def ends_near(self, params: Params) -> tuple[str, ...]:
        """Return the hyperparameters within a twentieth of an end of their ranges, as users see them."""
        ends = []
        for name, value in params.items():
            low, high = self.ranges[name]
            scale = math.log if is_logarithmic(name, low, high) else float
            if low < high and not 0.05 < (scale(value) - scale(low)) / (scale(high) - scale(low)) < 0.95:
                ends.append(f"{name} {value:.3g} of {low:g} to {high:g}")
        return tuple(ends)

    def of(self, model: Model, feature_type: FeatureType) -> "Space | None":
        """Return the space of one type, with as many trials; None where nothing of it is left.

        Type I on a frozen backbone has no parameters with the backbone's rate: all its points would be one training.
        """
        idle = f"{PREFIX}backbone"
        if not (model.frozen and feature_type == "type-I" and idle in self.grid):
            return self
        grid = {name: values for name, values in self.grid.items() if name != idle}
        ranges = {name: bounds for name, bounds in self.ranges.items() if name != idle}
        return replace(self, grid=grid, ranges=ranges) if grid else None


def search_space(recipe: Recipe, method: LoadedMethod) -> Space | None:
    """Return a trained method's search space, None for a method without anything to tune.

    The grid is the method's own unless the recipe has another, and learning rates only where the recipe has points.
    Ranges go from the smallest to the largest point.

    Raises:
        UserError: the recipe's grid has a name that the method does not tune, no points, or a value out of bounds.
    """
    grid: dict[str, Sequence[float]] = {}
    for name, info in method.cls.Params.model_fields.items():
        extra = info.json_schema_extra
        values = extra.get("grid") if isinstance(extra, dict) else None
        if isinstance(values, list) and values:
            grid[name] = [float(value) for value in values if isinstance(value, int | float)]
    not_shared = [name for name in recipe.tune.grid.get("all", {}) if name not in RATE_NAMES]
    if not_shared:
        raise UserError(f"tune.grid.all.{not_shared[0]}: all methods share only {', '.join(RATE_NAMES)}")
    groups = group_names(recipe, method)
    if groups is None:  # it cannot be built yet: those in the grid
        group_rates = [name for name in recipe.tune.grid.get(method.name, {}) if name.startswith(PREFIX)]
    else:
        group_rates = [PREFIX + name for name in groups]
    rates = [*RATE_NAMES, *group_rates]
    for section in ("all", method.name):
        for name, points in recipe.tune.grid.get(section, {}).items():
            if name not in grid and name not in rates:
                raise UserError(f"tune.grid.{section}.{name}: {section} tunes {', '.join([*grid, *rates])}")
            if not points:
                raise UserError(f"tune.grid.{section}.{name} is empty")
            grid[name] = list(dict.fromkeys(points))
            if name.startswith(PREFIX) and min(points) <= 0:
                raise UserError(f"tune.grid.{section}.{name}: a learning rate must be positive, not {min(points):g}")
    if not grid:
        return None
    ranges = {name: (min(values), max(values)) for name, values in grid.items()}
    space = Space(grid, ranges, math.prod(len(values) for values in grid.values()))
    for point in space.points:
        params = {name: value for name, value in point.items() if not name.startswith(PREFIX)}
        method.params(recipe.params_for(method.name) | params)  # raises out of bounds
    return space


def search_recipe(recipe: Recipe) -> Recipe:
    """Return the recipe that a search trains on: with `tune.every`, a part of the training images."""
    every = recipe.tune.every or recipe.train.every
    return recipe.model_copy(update={"train": recipe.train.model_copy(update={"every": every})})


@dataclass(frozen=True)
class Target:
    """The subject of one study: a method on one type of model."""

    recipe: Recipe
    prepared: Prepared
    method: LoadedMethod
    type: FeatureType
    weights: str | None

    def jobs(self, params: Params) -> list[Job]:
        """Return the runs of a configuration."""
        recipe = with_params(self.recipe, self.method.name, dict(params))
        return [
            Job(make_spec(recipe, self.prepared, self.method, self.type, seed, self.weights, split="val"), self.method)
            for seed in range(FIRST_SEED, FIRST_SEED + recipe.tune.runs)
        ]

    def start(self, space: Space) -> dict[str, float]:
        """Return the recipe's own values of the searched parameters, TPE's first configuration."""
        rates = self.recipe.rates_for(self.method.name, self.type).model_dump()
        params = self.method.params(self.recipe.params_for(self.method.name)).model_dump()
        values = {PREFIX + name: value for name, value in rates.items()} | params
        return {name: float(values[name]) for name in space.ranges}

    @property
    def label(self) -> str:
        """The name of the row for users."""
        return f"{self.method.name} {self.type}"

    def study(self, space: Space, sampler: str) -> str:
        """Return the study's name, which differs as soon as anything outside the search space differs."""
        content = self.jobs({})[0].spec.content()
        for name in space.grid:
            if name.startswith(PREFIX):
                content["train"]["lr"].pop(name.removeprefix(PREFIX), None)  # an own group's may be the classifier's
            else:
                del content["method"]["params"][name]
        searched: Any = [list(map(list, space.grid.items()))]
        if sampler == "tpe":
            searched = [sorted(space.ranges.items()), sorted(self.start(space).items())]
        digest = json_digest([content, self.recipe.tune.runs, sampler, searched])
        return f"{self.recipe.dataset} {self.recipe.protocol} {self.label} {sampler} {digest[:12]}"


def is_logarithmic(name: str, low: float, high: float) -> bool:
    """Whether a range is searched on a logarithmic scale: a learning rate's, and any over a decade or more."""
    return low > 0.0 and (name.startswith(PREFIX) or 10.0 * low <= high)


class Search:
    """The configurations of one search and their results; `sampler` is "grid", or "tpe" with median pruning.

    TPE begins with the configuration `start`, and its ranges include it.
    """

    def __init__(self, space: Space, sampler: str, start: Params | None = None) -> None:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        if start is not None:
            ends = {name: (*space.ranges[name], start[name]) for name in space.ranges}
            space = replace(space, ranges={name: (min(values), max(values)) for name, values in ends.items()})
        self.space = space
        self.sampler = sampler
        self.start = start
        self._study = optuna.create_study(
            direction="minimize",
            sampler=optuna.samplers.TPESampler(seed=0, n_startup_trials=STARTUP),
            pruner=optuna.pruners.MedianPruner(n_startup_trials=4, n_warmup_steps=2),
        )

    def next(self) -> list[Trial]:
        """Choose the configurations to try next: all points of a grid, `TRIALS_PER_BATCH` from TPE; [] at the end."""
        num_trials = self.space.trials - len(self._study.trials)
        distributions: dict[str, Any]
        if self.sampler == "tpe":
            ranges = self.space.ranges.items()
            distributions = {name: FloatDistribution(*ends, log=is_logarithmic(name, *ends)) for name, ends in ranges}
            if self.start is not None and not self._study.trials:
                self._study.enqueue_trial(dict(self.start))
            return [self._study.ask(distributions) for _ in range(min(TRIALS_PER_BATCH, num_trials))]
        distributions = {name: CategoricalDistribution(list(values)) for name, values in self.space.grid.items()}
        for point in self.space.points[:num_trials]:
            self._study.enqueue_trial(point)
        return [self._study.ask(distributions) for _ in range(num_trials)]

    def is_worse(self, trial: Trial, history: Sequence[Mapping[str, float]], epochs: int) -> bool:
        """Whether a trial is pruned: from the second epoch on, its first run was worse than the median of others.

        Depends only on the history and on earlier batches, not on when it is called.
        """
        state = self.trials()[trial.number]
        if state.state == TrialState.PRUNED or self.sampler == "grid":
            return state.state == TrialState.PRUNED
        for row in history[len(state.intermediate_values) : epochs - 1]:
            trial.report(row[f"val_{OBJECTIVE}"], int(row["epoch"]))
            if trial.should_prune():
                self._study.tell(trial, state=TrialState.PRUNED)
                return True
        return False

    def end(self, trial: Trial, values: Sequence[float], error: str = "") -> None:
        """End a trial with the mean of its runs' values, or with the error of a failed run."""
        trial.set_user_attr("values", list(values))
        if error:
            trial.set_user_attr("error", error)
            self._study.tell(trial, state=TrialState.FAIL)
        else:
            self._study.tell(trial, sum(values) / len(values))

    def trials(self) -> list[FrozenTrial]:
        """Return all trials so far, in order of choice."""
        return self._study.get_trials(deepcopy=False)

    def results(self) -> list[tuple[dict[str, Any], Summary]]:
        """Return hyperparameters and summary of the complete trials, best first; equal ones in the order of choice."""
        complete = [trial for trial in self.trials() if trial.state == TrialState.COMPLETE]
        ranked = sorted(complete, key=lambda trial: trial.value or 0.0)
        return [(trial.params, summarise(trial.user_attrs["values"])) for trial in ranked]


def without_password(storage: str) -> str:
    """Return the URL of a database as it may be shown."""
    try:
        return make_url(storage).render_as_string(hide_password=True)
    except ArgumentError:  # Optuna reports the problem
        return storage


class TrialRecord:
    """A study in a database; trials are added as they end, under a lock in the folder.

    Raises:
        UserError: from all methods: the database is full, unreachable or not a database.
    """

    def __init__(self, storage: str, name: str, folder: Path) -> None:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self.storage = storage
        self.folder = folder
        engine = {"connect_args": {"timeout": 60}} if storage.startswith("sqlite") else {}
        with self._lock_study():
            make_database(storage, lambda uri: RDBStorage(uri).engine.dispose())
            database = RDBStorage(storage, engine_kwargs=engine)
            self._study = optuna.create_study(
                storage=database, study_name=name, direction="minimize", load_if_exists=True
            )

    @contextmanager
    def _lock_study(self) -> Iterator[None]:
        def problem(error: BaseException) -> UserError:
            cause = error.__cause__ or error
            reason = (str(cause).strip() or type(cause).__name__).splitlines()[0]
            return UserError(f"--storage {self.storage}: {reason}; finished runs are kept")

        with foreign_errors(problem), Lock(self.folder, "study"):  # SQLAlchemy and its drivers raise many types
            yield

    def trials(self) -> list[FrozenTrial]:
        """Return the recorded trials."""
        with self._lock_study():
            return self._study.get_trials(deepcopy=False)

    def add(self, trial: FrozenTrial, runs: Sequence[str]) -> bool:
        """Add a trial with the ids of its runs; return False if it is there already."""
        with self._lock_study():
            trials = [(trial.user_attrs.get("runs"), trial.state) for trial in self._study.get_trials(deepcopy=False)]
            if (list(runs), trial.state) in trials:
                return False
            trial.user_attrs["runs"] = list(runs)
            self._study.add_trial(trial)
            return True
