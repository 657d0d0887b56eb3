"""Two rows of a comparison, their jobs by seed, and the looks at their finished runs."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from hierbench.api.registry import Found
from hierbench.config.recipe import Recipe
from hierbench.config.sections import FeatureType
from hierbench.data.prepared import Prepared
from hierbench.execution.session import Execution, work_of
from hierbench.planning.plan import make_plan
from hierbench.runs.job import Job
from hierbench.runs.repair import is_finished
from hierbench.runs.store import Store
from hierbench.studies.separation.design import FEWEST, LEVEL, Look, look_at, make_design
from hierbench.studies.separation.record import Asked, Plan, Record, open_record
from hierbench.utils.console import say
from hierbench.utils.errors import UserError, nearest, unknown_name

Row = tuple[Found, FeatureType]


class Separation:
    """Two rows that get further seeds until a look separates them.

    Args:
        asked: rows, largest number of seeds and metric.
        methods: of the comparison.
        types: likewise.
        seeds: of its other rows; the first look is at as many, and at 3 or more.

    Attributes:
        record: what was planned and seen, after `begin`.

    Raises:
        UserError: a row is not among the comparison's, both are the same, or there are fewer seeds than at the start.
    """

    record: Record

    def __init__(self, asked: Asked, methods: Sequence[Found], types: Sequence[FeatureType], seeds: int) -> None:
        rows = {f"{found.name}:{kind}": (found, kind) for found in methods for kind in types if kind in found.cls.types}
        self.asked = asked
        self.names = tuple(_whole_name(name, rows) for name in asked.rows)
        self.rows: list[Row] = [rows[name] for name in self.names]
        if self.names[0] == self.names[1]:
            raise UserError(f"--until-separated needs two rows, got {self.names[0]} twice")
        self.start = max(seeds, FEWEST)
        if asked.most < self.start:
            raise UserError(f"--max-seeds {asked.most}: the first look is already at {self.start} seeds")
        self._jobs: list[list[Job]] = []  # by seed: the jobs of both rows and of what they re-rank
        self._tops: list[tuple[str, str]] = []  # by seed: ids of the two rows' runs
        self._finished = 0  # seeds whose runs were found finished

    def describe(self) -> str:
        """Return the plan in one line."""
        one, other = self.names
        nominal = make_design(self.start, self.asked.most).nominal
        return (
            f"until {one} and {other} are separated in {self.asked.metric}: a look after every seed from {self.start} "
            f"to {self.asked.most}, each at level {nominal:.2g}; equal rows are separated in {100 * LEVEL:g} % of cases"
        )

    def plan(
        self, recipe: Recipe, prepared: Prepared, weights: str | None, params: Mapping[tuple[str, FeatureType], Any]
    ) -> None:
        """Plan the jobs of the two rows up to the largest number of seeds; arguments as in `make_plan`.

        Raises:
            UserError: the dataset has too few classes for the metric.
        """
        num, k = prepared.hierarchy(recipe.distance).num_classes, int(self.asked.metric.partition("@")[2] or 1)
        if k > num:
            raise UserError(f"--separation-metric {self.asked.metric}: {recipe.dataset} has {num} classes")
        plans = [
            make_plan(recipe, prepared, [found], [kind], self.asked.most, weights, params) for found, kind in self.rows
        ]
        by_seed: list[dict[str, Job]] = [{} for _ in range(self.asked.most)]
        for job in (job for plan in plans for job in plan):
            of_seed = by_seed[job.spec.seed]
            if job.id not in of_seed or job.shown:  # one row may be the base of the other
                of_seed[job.id] = job
        self._jobs = [list(of_seed.values()) for of_seed in by_seed]
        tops = [[job.id for job in plan if job.shown] for plan in plans]
        self._tops = list(zip(*tops, strict=True))

    def begin(self, plan: list[Job], store: Store) -> None:
        """Open the record, make the looks that finished runs allow, and add to a plan what these and the next need.

        A new plan of looks is recorded before the first.

        Raises:
            UserError: there is another plan for these rows.
        """
        self.record = self._open(store)
        for row, seeds in self.record.plan.there.items():
            say(
                f"note: {row} had runs of {'seed' if len(seeds) == 1 else 'seeds'} {', '.join(map(str, seeds))} before "
                "the looks were planned; whoever had compared them already finds more than the level says"
            )
        self._advance(store, say)
        is_over = self.record.outcome != "open"
        last = self.record.plan.start + len(self.record.looks) - is_over  # seeds of the look that ended it, or is next
        _add([job for of_seed in self._jobs[:last] for job in of_seed], plan)

    def go_on(self, plan: list[Job], labels: dict[str, str], on_jobs: Callable[[], None], execution: Execution) -> None:
        """Make the looks that are left, and run what each needs, until one separates the rows or a job fails.

        `on_jobs` is called when jobs were added to the plan.
        """
        store, tried = execution.setting.store, {job.id for job in plan}
        while jobs := self._advance(store, execution.meter.say):
            new = [job for job in jobs if job.id not in tried]
            if not new:  # a job of the next look has failed
                return
            _add(new, plan)
            on_jobs()
            tried |= {job.id for job in new}
            labels |= {job.id: job.spec.label for job in new}
            execution.meter.extend(sum(work_of(job) for job in new if not is_finished(job.spec, store)))
            execution.run(new, labels)

    def _open(self, store: Store) -> Record:
        spec = self._jobs[0][0].spec
        specs = {job.id: job.spec for job in self._jobs[0]}
        settings = [specs[top].model_copy(update={"seed": 0, "base": None}).id for top in self._tops[0]]
        finished = zip(*[[store.run(id_).done for id_ in tops] for tops in self._tops], strict=True)
        there = {
            name: tuple(seed for seed, done in enumerate(of_row) if done and seed >= self.start)
            for name, of_row in zip(self.names, finished, strict=True)
        }
        plan = Plan(
            dataset=spec.dataset.name,
            protocol=spec.protocol,
            rows=(self.names[0], self.names[1]),
            settings=(settings[0], settings[1]),
            metric=self.asked.metric,
            level=LEVEL,
            nominal=make_design(self.start, self.asked.most).nominal,
            start=self.start,
            most=self.asked.most,
            there={name: seeds for name, seeds in there.items() if seeds},
        )
        record = open_record(store.root, plan, self.asked.options)
        if record.plan.rows != plan.rows:
            self._tops = [(other, one) for one, other in self._tops]
        return record

    def _advance(self, store: Store, note: Callable[[str], None]) -> list[Job]:
        """Make the looks that finished runs allow; return the jobs that the next one needs, [] after the last."""
        record = self.record
        while record.outcome == "open":
            seeds = record.plan.start + len(record.looks)
            new = [job for of_seed in self._jobs[self._finished : seeds] for job in of_seed]
            if not all(is_finished(job.spec, store) for job in new):
                return new
            self._finished = seeds
            record.add(self._look(record, seeds, store), [job.id for of_seed in self._jobs[:seeds] for job in of_seed])
            note(record.line())
        return []

    def _look(self, record: Record, seeds: int, store: Store) -> Look:
        """Return the t-test of the seeds in which both rows have a value."""
        tests = [[store.run(id_).metrics()["test"] for id_ in tops] for tops in self._tops[:seeds]]
        values = np.array([[test.get(self.asked.metric) for test in of_seed] for of_seed in tests], dtype=np.float64)
        gaps = values[:, 0] - values[:, 1]  # NaN where a row has no value
        gaps = gaps[~np.isnan(gaps)]
        if len(gaps) < 2:
            return Look(len(gaps), float(gaps.mean()) if len(gaps) else 0.0, 0.0, 1.0)
        return look_at(gaps, record.plan.nominal)


def _add(jobs: Sequence[Job], plan: list[Job]) -> None:
    known = {job.id: place for place, job in enumerate(plan)}
    for job in jobs:
        if job.id not in known:
            plan.append(job)
        elif job.shown:
            plan[known[job.id]] = job


def _whole_name(name: str, rows: Mapping[str, Row]) -> str:
    """Return METHOD:TYPE of a row that is named METHOD[:TYPE]."""
    found = [whole for whole in rows if name in (whole, whole.partition(":")[0])]
    if not found:
        known = [whole.partition(":")[0] for whole in rows] if ":" not in name else rows
        raise unknown_name("row of --until-separated", name, rows, nearest(name, known))
    if len(found) > 1:
        raise UserError(f"--until-separated {name}: which type? give {' or '.join(found)}")
    return found[0]
