"""A search over hyperparameters and learning rates.

A search chooses the same configurations whenever it is started: it runs in memory, and its only input is the results in
the runs folder. So a killed search resumes without training anything twice, and commands that share a runs folder share
the work through the locks of its runs.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import product
from typing import Any

import optuna
from optuna.distributions import CategoricalDistribution, FloatDistribution
from optuna.trial import FrozenTrial, Trial, TrialState
from scipy.stats import qmc

from hierbench.api.registry import LoadedMethod
from hierbench.config.rates import PREFIX, RATE_NAMES
from hierbench.config.recipe import Recipe, ResolvedRecipe
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
        ends = [(name, value, *self.ranges[name]) for name, value in params.items() if self._is_at_end(name, value)]
        return tuple(f"{name} {value:.3g} of {low:g} to {high:g}" for name, value, low, high in ends)

    def _is_at_end(self, name: str, value: float) -> bool:
        low, high = self.ranges[name]
        if low >= high:
            return False
        scale = math.log if is_logarithmic(name, low, high) else float
        return abs((scale(value) - scale(low)) / (scale(high) - scale(low)) - 0.5) >= 0.45

    def draw(self, num: int, seed: int) -> list[dict[str, float]]:
        """Return points of the ranges, the first of a scrambled Sobol sequence (Owen, J. Complexity 14, 1998)."""
        unit = qmc.Sobol(len(self.ranges), rng=seed).random_base2(max(0, num - 1).bit_length())[:num]
        points: list[dict[str, float]] = [{} for _ in range(num)]
        for column, name in enumerate(sorted(self.ranges)):
            low, high = self.ranges[name]
            is_log = is_logarithmic(name, low, high)
            for point, share in zip(points, unit[:, column].tolist(), strict=True):
                point[name] = low * (high / low) ** share if is_log else low + (high - low) * share
        return points

    def of(self, model: Model, feature_type: FeatureType) -> "Space | None":
        """Return the space of one type, with as many trials; None where nothing of it is left.

        Type I on a frozen backbone has no parameters with the backbone's rate, and pooled features have none with that
        of a transform: all points of these would be one training.
        """
        idle = {f"{PREFIX}backbone"} if model.frozen and feature_type != "type-II" else set()
        idle |= {f"{PREFIX}transform"} if feature_type == "pooled" else set()
        grid = {name: values for name, values in self.grid.items() if name not in idle}
        ranges = {name: bounds for name, bounds in self.ranges.items() if name not in idle}
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
        declared: dict[str, Any] = extra if isinstance(extra, dict) else {}
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
    space = Space(grid, ranges, math.prod(len(values) for values in grid.values()))
    for point in space.points:
        params = {name: value for name, value in point.items() if not name.startswith(PREFIX)}
        method.params(recipe.params_for(method.name) | params)  # raises out of bounds
    return space


def search_recipe(recipe: ResolvedRecipe) -> ResolvedRecipe:
    """Return the recipe that a search trains on: with `tune.every`, a part of the training images."""
    every = recipe.tune.every or recipe.train.every
    return recipe.model_copy(update={"train": recipe.train.model_copy(update={"every": every})})


@dataclass(frozen=True)
class Target:
    """The subject of one study: a method on one type of model."""

    recipe: ResolvedRecipe
    prepared: Prepared
    method: LoadedMethod
    type: FeatureType
    weights: str | None

    def jobs(self, params: Params, first: int = 0, runs: int = 0) -> list[Job]:
        """Return the runs of a configuration from the number `first` on, by default all that every one has."""
        recipe = with_params(self.recipe, self.method.name, dict(params))
        return [
            Job(make_spec(recipe, self.prepared, self.method, self.type, seed, self.weights, split="val"), self.method)
            for seed in range(FIRST_SEED + first, FIRST_SEED + (runs or recipe.tune.runs))
        ]

    @property
    def seed(self) -> int:
        """The seed of a random search: of the data, the network and the row, so that no two rows share a draw."""
        return int(
            sha256(f"{self.recipe.data.dataset} {self.recipe.model.backbone} {self.row}".encode()).hexdigest()[:8], 16
        )

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
        if sampler != "grid":
            searched = [sorted(space.ranges.items()), sorted(self.start(space).items())]
        digest = json_digest([content, self.recipe.tune.runs, sampler, searched])
        return f"{self.recipe.dataset} {self.recipe.protocol} {self.label} {sampler} {digest[:12]}"


def is_logarithmic(name: str, low: float, high: float) -> bool:
    """Whether a range is searched on a logarithmic scale: a learning rate's, and any over a decade or more."""
    return low > 0.0 and (name.startswith(PREFIX) or 10.0 * low <= high)


class Search:
    """The configurations of one search and their results; `sampler` is "grid", "random" or "tpe".

    The last two begin with the configuration `start`, which the ranges include. Of a random search the others are
    drawn with `seed`, see `Space.draw`; of TPE the first `STARTUP` are.
    """

    def __init__(self, space: Space, sampler: str, start: Params | None = None, seed: int = 0) -> None:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        if start is not None:
            ends = {name: (*space.ranges[name], start[name]) for name in space.ranges}
            space = replace(space, ranges={name: (min(values), max(values)) for name, values in ends.items()})
        self.space = space
        self.sampler = sampler
        self.start = start
        self.seed = seed
        self._more = dict[int, list[Mapping[str, Any]]]()  # results of further runs, by number of a trial
        self._study = optuna.create_study(
            direction="minimize", sampler=optuna.samplers.TPESampler(seed=0, n_startup_trials=STARTUP)
        )

    def next(self) -> list[Trial]:
        """Choose what to try next: all points of a grid or of a draw, `TRIALS_PER_BATCH` from TPE; [] at the end."""
        num_trials = self.space.trials - len(self._study.trials)
        distributions: dict[str, Any]
        if self.sampler != "grid":
            ranges = self.space.ranges.items()
            distributions = {name: FloatDistribution(*ends, log=is_logarithmic(name, *ends)) for name, ends in ranges}
            points = [] if self.start is None or self._study.trials else [dict(self.start)]
            if self.sampler == "random" and num_trials:
                points += self.space.draw(num_trials - len(points), self.seed)
            for point in points:
                self._study.enqueue_trial(point)
            at_once = num_trials if self.sampler == "random" else TRIALS_PER_BATCH
            return [self._study.ask(distributions) for _ in range(min(at_once, num_trials))]
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

    def finalists(self, num: int) -> list[FrozenTrial]:
        """Return the best complete trials, the best first."""
        return sorted(self._complete(), key=lambda trial: trial.value or 0.0)[:num]

    def confirm(self, trial: FrozenTrial, results: Sequence[Mapping[str, Any]]) -> None:
        """Add the results of further runs of a finalist; finalists are then compared by the mean of all."""
        self._more[trial.number] = list(results)

    def trials(self) -> list[FrozenTrial]:
        """Return all trials so far, in order of choice."""
        return self._study.get_trials(deepcopy=False)

    def results(self) -> list[tuple[dict[str, Any], Summary]]:
        """Return hyperparameters and summary of the complete trials, finalists and then best first.

        Equal ones are in the order of choice.
        """
        more = self._more
        values = {
            trial.number: [*trial.user_attrs[OBJECTIVE], *(result[OBJECTIVE] for result in more.get(trial.number, ()))]
            for trial in self._complete()
        }
        summaries = {number: summarise(numbers) for number, numbers in values.items()}
        ranked = sorted(self._complete(), key=lambda t: (t.number not in more, summaries[t.number].mean or 0.0))
        return [(trial.params, summaries[trial.number]) for trial in ranked]

    def _complete(self) -> list[FrozenTrial]:
        return [trial for trial in self.trials() if trial.state == TrialState.COMPLETE]

    def other_choices(self) -> dict[str, dict[str, Any]]:
        """Return the configuration that another rule would have chosen, by the rule; {} without a complete trial.

        The rules are the best mean of each of `OTHER_METRICS`, and the least severity among the configurations whose
        top-1 accuracy is within half a point of the best.
        """
        trials = self._complete()
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
