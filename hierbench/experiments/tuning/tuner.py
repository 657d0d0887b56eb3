"""The runs behind a search's trials: which jobs a configuration consists of, and the loop that runs them."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from typing import Any

from optuna.trial import Trial

from hierbench.api.registry import Found
from hierbench.config.recipe import FeatureType, Recipe
from hierbench.config.spec import digest_of
from hierbench.data.prepared import Prepared
from hierbench.execution.scheduler import planned
from hierbench.execution.workers import Worker, free_slot
from hierbench.experiments.tuning.study import Params, Search, Space
from hierbench.planning.plan import make_spec, with_params
from hierbench.planning.resources import Setting
from hierbench.runs.job import Job
from hierbench.runs.mlflow_mirror import Mirror
from hierbench.runs.peers import Elsewhere
from hierbench.runs.repair import is_finished
from hierbench.runs.store import Store
from hierbench.utils.console import Meter
from hierbench.utils.errors import UserError

FIRST_SEED = 1000  # final runs count from 0: a seed that was tuned on is never reported
OBJECTIVE = "hierdist@1"
WAIT = 0.5  # seconds between two looks at what other processes do


@dataclass(frozen=True)
class Target:
    """What one study is about."""

    recipe: Recipe
    prepared: Prepared
    found: Found
    type: FeatureType
    weights: str | None

    def jobs(self, params: Params) -> list[Job]:
        """Return the runs of a configuration."""
        recipe = with_params(self.recipe, self.found.name, params)
        return [
            Job(make_spec(recipe, self.prepared, self.found, self.type, seed, self.weights, split="val"), self.found)
            for seed in range(FIRST_SEED, FIRST_SEED + recipe.tune.runs)
        ]

    @property
    def label(self) -> str:
        """What a person calls it."""
        return f"{self.found.name} {self.type}"

    def study(self, space: Space, sampler: str) -> str:
        """Return the study's name: another one as soon as anything but the hyperparameters differs."""
        content = self.jobs({})[0].spec.content()
        for name in space.grid:
            del content["method"]["params"][name]
        searched: Any = [list(map(list, space.grid.items()))] if sampler == "grid" else [sorted(space.ranges.items())]
        digest = digest_of([content, self.recipe.tune.runs, sampler, searched])
        return f"{self.recipe.dataset} {self.recipe.protocol} {self.label} {sampler} {digest[:12]}"


def search_space(recipe: Recipe, found: Found) -> Space | None:
    """Return what there is to search of a method, None for a method without hyperparameters to tune.

    The grid is the method's own where the recipe names no other; ranges are the hyperparameters' bounds.

    Raises:
        UserError: the recipe's grid names what the method has not, or leaves its bounds.
    """
    grid: dict[str, Sequence[float]] = {}
    ranges: dict[str, tuple[float, float]] = {}
    for name, info in found.cls.Params.model_fields.items():
        extra = info.json_schema_extra
        values = extra.get("grid") if isinstance(extra, dict) else None
        if isinstance(values, list) and values:
            grid[name] = [float(value) for value in values if isinstance(value, int | float)]
            bounds = {key: getattr(item, key) for item in info.metadata for key in ("ge", "le") if hasattr(item, key)}
            ranges[name] = (bounds.get("ge", min(grid[name])), bounds.get("le", max(grid[name])))
    for name, own in recipe.tune.grid.get(found.name, {}).items():
        if name not in grid:
            raise UserError(f"tune.grid.{found.name}.{name}: {found.name} tunes {', '.join(grid) or 'nothing'}")
        if not own:
            raise UserError(f"tune.grid.{found.name}.{name} is empty")
        grid[name] = list(dict.fromkeys(own))
    if not grid:
        return None
    space = Space(grid, ranges, math.prod(len(values) for values in grid.values()))
    for point in space.points:
        found.params(recipe.methods.get(found.name, {}) | point)  # outside its bounds: found out now
    return space


@dataclass
class _Slot:
    """A worker process and the trial it is busy with."""

    worker: Worker
    trial: Trial | None = None
    todo: list[Job] = field(default_factory=list)
    jobs: list[Job] = field(default_factory=list)
    reported: int = 0  # epochs of the trial's first run that the pruner has seen


class Tuning:
    """The search of one method on one type of model, as far as this process takes part in it."""

    def __init__(self, target: Target, search: Search, setting: Setting, mirror: Mirror, meter: Meter) -> None:
        self.target, self.search, self.setting, self.mirror, self.meter = target, search, setting, mirror, meter
        self.store = Store(setting.runs)
        self.elsewhere = Elsewhere(self.store)
        self.slots: list[_Slot] = []
        self.failed: dict[str, str] = {}

    def run(self) -> None:
        """Work until no configuration is left, here or in other processes."""
        try:
            while True:
                self._start_trials()
                busy = [slot for slot in self.slots if slot.trial is not None]
                if not busy:
                    if not self.search.busy_elsewhere():
                        return self._mirror_missing()
                    time.sleep(WAIT)  # what another process drops is taken up here
                    continue
                self.search.sign_of_life([slot.trial for slot in busy if slot.trial is not None])
                wait([slot.worker.connection for slot in busy if slot.worker.job is not None], timeout=WAIT)
                for slot in busy:
                    self._poll(slot)
        finally:
            for slot in self.slots:
                slot.worker.stop()

    def _mirror_missing(self) -> None:
        """Mirror what commands had finished that were killed before they could mirror it."""
        jobs = [job for trial in self.search.finished() for job in self.target.jobs(dict(trial.params))]
        for job in self.mirror.missing(jobs):
            self.mirror.write(job)

    def _start_trials(self) -> None:
        while len([slot for slot in self.slots if slot.trial is not None]) < self.setting.workers:
            trial = self.search.next()
            if trial is None:
                return
            slot = next((slot for slot in self.slots if slot.trial is None), None)
            if slot is None:
                slot = _Slot(Worker(self.setting, free_slot(self.setting, [slot.worker for slot in self.slots])))
                self.slots.append(slot)
            slot.trial, slot.reported = trial, 0
            slot.jobs = self.target.jobs(dict(trial.params))
            slot.todo = list(slot.jobs)
            self._next_job(slot)

    def _next_job(self, slot: _Slot) -> None:
        """Start the trial's next run that is not there yet, or end the trial."""
        while slot.todo and is_finished(slot.todo[0].spec, self.store):
            if not self._worth_going_on(slot, slot.todo[0]):
                return
            self._count(slot.todo.pop(0))
        if slot.todo:
            if self.elsewhere.has(slot.todo[0]):  # `run` comes back to it
                self.elsewhere.follow(slot.todo[:1], self._progress, self.meter.say)
                return
            planned(slot.todo[:1], self.store, self.meter.say)
            slot.worker.start(slot.todo[0], self.elsewhere.dead(slot.todo[0]))
            return
        assert slot.trial is not None
        values = [self.store.run(job.id).metrics()["val"][OBJECTIVE] for job in slot.jobs]
        mean = sum(values) / len(values)
        self.search.complete(slot.trial, mean, values, [job.id for job in slot.jobs])
        self.meter.say(f"{self.target.label} {shown(slot.trial.params)}: validation {OBJECTIVE} {mean:.4f}")
        slot.trial = None

    def _count(self, job: Job) -> None:
        self.meter.end_part(self._name(job), float(job.spec.train.epochs))

    def _name(self, job: Job) -> str:
        params = {name: job.spec.method.params[name] for name in self.search.space.grid}
        return f"{self.target.label} {shown(params)} seed {job.spec.seed}"

    def _progress(self, job: Job, done: float, total: int) -> None:
        self.meter.part(self._name(job), done, total)

    def _poll(self, slot: _Slot) -> None:
        if slot.worker.job is None:  # another process has the run that comes next
            self._next_job(slot)
            return
        job = slot.todo[0]
        ended: list[str | None] = []
        alive = slot.worker.poll(self._progress, lambda job, error: ended.append(error), self.meter.say)
        if not alive:
            self.slots.remove(slot)
        if ended == [None]:  # another process was faster
            return
        if not ended:
            self._worth_going_on(slot, job)
            return
        self._count(slot.todo.pop(0))
        self.mirror.write(job)
        if ended[0]:
            assert slot.trial is not None
            self.failed[job.id] = ended[0]
            self.store.writable()
            self.meter.say(f"failed: {self._name(job)}: {ended[0]}")
            self.search.give_up(slot.trial, ended[0])
            slot.trial = None
        elif self._worth_going_on(slot, job):
            self._next_job(slot)

    def _worth_going_on(self, slot: _Slot, job: Job) -> bool:
        """Show the pruner what the trial's first run has reached; end the trial if it is worse than the median."""
        if self.search.sampler == "grid" or job is not slot.jobs[0] or slot.trial is None:
            return True
        try:
            history = self.store.run(job.id).history()
        except FileNotFoundError:
            return True
        for row in history[slot.reported :]:
            slot.trial.report(row[f"val_{OBJECTIVE}"], int(row["epoch"]))
        slot.reported = len(history)
        if slot.reported == job.spec.train.epochs or not slot.trial.should_prune():
            return True
        self.search.prune(slot.trial)
        self.meter.say(f"{self.target.label} {shown(slot.trial.params)}: stopped after epoch {slot.reported}")
        for left in slot.todo:
            self._count(left)
        if slot in self.slots and slot.worker.job is not None:  # in the middle of it
            slot.worker.stop()
            self.slots.remove(slot)
        slot.trial = None
        return False


def shown(params: Mapping[str, Any]) -> str:
    """Return hyperparameters as a person reads them."""
    return ", ".join(f"{name} {value:g}" for name, value in params.items())
