"""A search over hyperparameters and learning rates.

A search chooses the same configurations whenever it is started: it runs in memory, and its only input is the results in
the runs folder. So a killed search resumes without training anything twice, and commands that share a runs folder share
the work through the locks of its runs.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import optuna
from optuna.distributions import CategoricalDistribution, FloatDistribution
from optuna.trial import FrozenTrial, Trial, TrialState

from hierbench.api.registry import LoadedMethod
from hierbench.config.rates import PREFIX, RATE_NAMES
from hierbench.config.recipe import Recipe
from hierbench.config.sections import FeatureType, Model
from hierbench.config.spec import json_digest
from hierbench.data.prepared import Prepared
from hierbench.execution.jobs import make_spec, with_params
from hierbench.execution.rate_groups import group_names, has_classifier
from hierbench.leaderboard.statistics import Summary, summarise
from hierbench.runs.job import Job
from hierbench.utils.errors import UserError

FIRST_SEED = 1000  # final runs count from 0: a seed that was tuned on is never reported
OBJECTIVE = "hierdist@1"
OTHER_METRICS = (("top1", -1.0), ("mistake_severity", 1.0), ("hierdist@5", 1.0))  # and the sign of what is least
STARTUP = 6  # configurations that TPE draws at random
# Configurations that TPE chooses at once; not the number of workers, so that all machines choose the same.
TRIALS_PER_BATCH = 4
WIDENED_AFTER = 8  # configurations of TPE, again and again
Params = Mapping[str, float]


@dataclass(frozen=True)
class Space:
    """The space of a search: a grid {name: values}, or ranges {name: (low, high)} with a number of trials.

    `limits` {name: (least, largest)} are the values that a hyperparameter can have at all, and `logs` says what is on a
    logarithmic scale where the ranges have been widened.
    """

    grid: Mapping[str, Sequence[float]]
    ranges: Mapping[str, tuple[float, float]]
    trials: int
    limits: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    logs: Mapping[str, bool] = field(default_factory=dict)

    def is_log(self, name: str) -> bool:
        """Whether a range is searched on a logarithmic scale, as it was from the beginning."""
        return self.logs.get(name, is_logarithmic(name, *self.ranges[name]))

    @property
    def points(self) -> list[dict[str, float]]:
        """The grid's points, the last hyperparameter fastest."""
        return [dict(zip(self.grid, values, strict=True)) for values in product(*self.grid.values())]

    def ends_near(self, params: Params) -> tuple[str, ...]:
        """Return the hyperparameters within a twentieth of an end of their ranges, as users see them."""
        ends = [(name, value, *self.ranges[name]) for name, value in params.items() if self._place(name, value)]
        return tuple(f"{name} {value:.3g} of {low:g} to {high:g}" for name, value, low, high in ends)

    def _place(self, name: str, value: float) -> int:
        """Return -1 for a value within a twentieth of the lower end of its range, 1 for the upper, else 0."""
        low, high = self.ranges[name]
        if low >= high:
            return 0
        scale = math.log if self.is_log(name) else float
        share = (scale(value) - scale(low)) / (scale(high) - scale(low))
        return int(share >= 0.95) - int(share <= 0.05)

    def widened(self, params: Params) -> "Space":
        """Return the space with each range longer by half beyond the end near which its value lies, within limits."""
        ranges = dict(self.ranges)
        for name, (low, high) in self.ranges.items():
            place = self._place(name, params[name])
            least, largest = self.limits.get(name, (-math.inf, math.inf))
            if place < 0:
                low = max(low * math.sqrt(low / high) if self.is_log(name) else low - (high - low) / 2.0, least)
            elif place > 0:
                high = min(high * math.sqrt(high / low) if self.is_log(name) else high + (high - low) / 2.0, largest)
            ranges[name] = (low, high)
        return replace(self, ranges=ranges, logs={name: self.is_log(name) for name in ranges})

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
    limits = dict[str, tuple[float, float]]()
    for name, info in method.cls.Params.model_fields.items():
        extra = info.json_schema_extra
        declared: dict[str, Any] = extra if isinstance(extra, dict) else {}
        low, high = declared.get("limits", (-math.inf, math.inf))
        limits[name] = (low, high)
        if declared.get("grid"):
            grid[name] = [float(value) for value in declared["grid"]]
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
            if name == f"{PREFIX}classifier" and not has_classifier(recipe, method):
                if section != "all":
                    raise UserError(f"tune.grid.{section}.{name}: {section} has no parameters with this rate")
                continue
            grid[name] = list(dict.fromkeys(points))
            if name.startswith(PREFIX) and min(points) <= 0:
                raise UserError(f"tune.grid.{section}.{name}: a learning rate must be positive, not {min(points):g}")
    if not grid:
        return None
    ranges = {name: (min(values), max(values)) for name, values in grid.items()}
    space = Space(grid, ranges, math.prod(len(values) for values in grid.values()), limits)
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

    @property
    def row(self) -> str:
        """The name of the row in a request's budget."""
        return f"{self.method.name}:{self.type}"

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
    """The configurations of one search and their results; `sampler` is "grid" or "tpe".

    TPE begins with the configuration `start`, and its ranges include it. After each eight configurations those
    ranges are widened at whose ends the best one lies, see `Space.widened`; a larger budget continues a smaller one.
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
            direction="minimize", sampler=optuna.samplers.TPESampler(seed=0, n_startup_trials=STARTUP)
        )

    def next(self) -> list[Trial]:
        """Choose the configurations to try next: all points of a grid, `TRIALS_PER_BATCH` from TPE; [] at the end."""
        num_trials = self.space.trials - len(self._study.trials)
        distributions: dict[str, Any]
        if self.sampler == "tpe":
            results = self.results()
            if results and len(self._study.trials) % WIDENED_AFTER == 0 and num_trials:
                self.space = self.space.widened(results[0][0])
            ranges = self.space.ranges.items()
            distributions = {name: FloatDistribution(*ends, log=self.space.is_log(name)) for name, ends in ranges}
            if self.start is not None and not self._study.trials:
                self._study.enqueue_trial(dict(self.start))
            return [self._study.ask(distributions) for _ in range(min(TRIALS_PER_BATCH, num_trials))]
        distributions = {name: CategoricalDistribution(list(values)) for name, values in self.space.grid.items()}
        for point in self.space.points[:num_trials]:
            self._study.enqueue_trial(point)
        return [self._study.ask(distributions) for _ in range(num_trials)]

    def end(self, trial: Trial, results: Sequence[Mapping[str, Any]], error: str = "") -> None:
        """End a trial with the validation metrics of its runs, of which the mean objective counts, or with an error."""
        for name in (OBJECTIVE, *dict(OTHER_METRICS)):
            trial.set_user_attr(name, [result.get(name) for result in results])
        if error:
            trial.set_user_attr("error", error)
            self._study.tell(trial, state=TrialState.FAIL)
        else:
            self._study.tell(trial, _mean_of(trial, OBJECTIVE))

    def trials(self) -> list[FrozenTrial]:
        """Return all trials so far, in order of choice."""
        return self._study.get_trials(deepcopy=False)

    def results(self) -> list[tuple[dict[str, Any], Summary]]:
        """Return hyperparameters and summary of the complete trials, best first; equal ones in the order of choice."""
        complete = [trial for trial in self.trials() if trial.state == TrialState.COMPLETE]
        ranked = sorted(complete, key=lambda trial: trial.value or 0.0)
        return [(trial.params, summarise(trial.user_attrs[OBJECTIVE])) for trial in ranked]

    def other_choices(self) -> dict[str, dict[str, Any]]:
        """Return the configuration that another rule would have chosen, by the rule; {} without a complete trial.

        The rules are the best mean of each of `OTHER_METRICS`, and the least severity among the configurations whose
        top-1 accuracy is within half a point of the best.
        """
        trials = [trial for trial in self.trials() if trial.state == TrialState.COMPLETE]
        if not trials:
            return {}
        most = max(_mean_of(trial, "top1") for trial in trials)
        near = [trial for trial in trials if _mean_of(trial, "top1") >= most - 0.5]
        best = {name: min(trials, key=lambda trial: sign * _mean_of(trial, name)) for name, sign in OTHER_METRICS}
        best["mistake_severity within 0.5 of top1"] = min(near, key=lambda trial: _mean_of(trial, "mistake_severity"))
        return {rule: trial.params for rule, trial in best.items()}


def _mean_of(trial: Trial | FrozenTrial, metric: str) -> float:
    """Return the mean of a metric over the runs of a trial; a run without mistakes has a severity of 0."""
    values = trial.user_attrs[metric]
    return sum(value or 0.0 for value in values) / len(values)
