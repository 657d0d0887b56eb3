"""The rows of a table, from the records of its runs; a scored row comes from `hierbench.leaderboard.scored_rows`."""

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from hierbench.config.rates import PREFIX
from hierbench.config.recipe import Recipe
from hierbench.config.spec import Spec
from hierbench.leaderboard.statistics import BY_HAND, PAPER_METRICS, Row, Summary, summarise
from hierbench.runs.record import Record
from hierbench.runs.records import Records
from hierbench.runs.state import State, weakest
from hierbench.utils.text import one_line

Item = TypeVar("Item")


def row_state(ids: Sequence[str], records: Records) -> State | None:
    """Return the weakest state of a row's finished runs, or None."""
    if any(run_id in records.rejected_row_ids for run_id in ids):
        return State.REJECTED
    return weakest(record.state for run_id in ids if (record := records.get(run_id)) is not None and record.done)


def count_states(rows: Sequence[Row], records: Records) -> str:
    """Return the number of runs of a table in each state, as a line, or ""."""
    runs = [record for row in rows for run_id in row.runs if (record := records.get(run_id)) is not None]
    counts = Counter(record.state.words for record in runs if record.state != State.UNFINISHED)
    parts = [f"{counts[words]} {words}" for words in dict.fromkeys(state.words for state in State) if counts[words]]
    first, _, rest = (parts[0] if parts else "").partition(" ")
    return ", ".join([f"{first} run{'' if first == '1' else 's'} {rest}", *parts[1:]]) if parts else ""


def summarise_metrics(results: Sequence[Mapping[str, Any]], ddof: int = 1) -> dict[str, Summary]:
    """Return the cells of a row, one per common metric of its runs."""
    names = [metric for metric in PAPER_METRICS if all(metric in result for result in results)]
    values = {name: [math.nan if (value := r[name]) is None else float(value) for r in results] for name in names}
    return {name: summarise(numbers, ddof) for name, numbers in values.items()}


def groups(items: Iterable[Item], key: Callable[[Item], Hashable]) -> list[list[Item]]:
    """Return the items that share a key together, in the order of their first."""
    items_by_key: dict[Hashable, list[Item]] = {}
    for item in items:
        items_by_key.setdefault(key(item), []).append(item)
    return list(items_by_key.values())


def runs_by_row(records: Iterable[Record]) -> list[list[Record]]:
    """Return the runs of each row together: runs that differ only in the seed."""
    return groups(records, lambda record: record.row)


def describe_tuning(record: Record, all_records: Records, recipe: Recipe | None) -> str:
    """Return how the hyperparameters of a run were chosen: by the user's search, by hand, or as the recipe has them."""
    budget = all_records.tuning_budget(record)
    if budget:
        return f"{budget['trials']} x {budget['runs']}"
    spec = record.job
    if recipe is None:
        return "defaults"
    params = {name: value for name, value in recipe.methods.get(spec.method.name, {}).items() if name != "lr"}
    changed = any(spec.method.params.get(name, value) != value for name, value in params.items())
    if changed or (spec.base is None and spec.train.lr != recipe.rates_for(spec.method.name, spec.type)):
        return BY_HAND
    return f"{recipe.tune.searched}, in the recipe" if recipe.tune.searched else "defaults"


def make_rows(records: Sequence[Record], all_records: Records, recipe: Recipe | None = None) -> list[Row]:
    """Group runs by type and method; different hyperparameters make separate rows.

    Of these, the one row that was not set by hand has the method's title, and the others add in what they differ from
    it; without such a row each adds its own. A title that several methods share is followed by each one's name. A seed
    counts once: of runs of several versions the newest that is done, otherwise the first.

    Args:
        records: runs that may be ranked together.
        all_records: all runs of their folder, which say how these were tuned.
        recipe: of the runs, which may have been searched itself.
    """
    rows: list[Row] = []
    grouped = runs_by_row(records)
    for row_records in grouped:
        run_by_seed: dict[int, Record] = {}
        for record in row_records:
            if record.done or record.job.seed not in run_by_seed:
                run_by_seed[record.job.seed] = record
        runs = [run_by_seed[seed] for seed in sorted(run_by_seed)]
        finished = {record.job.seed: record for record in runs if record.done}
        spec = runs[0].job
        results = [record.metrics for record in finished.values()]
        title = one_line(next((record.title for record in finished.values()), spec.method.name))
        ids = tuple(record.id for record in runs)
        row = Row(
            type=spec.type,
            method=spec.method.name,
            title=title,
            n=len(finished),
            planned=len(runs),
            metrics=summarise_metrics(results, spec.evaluation.ddof),
            runs=ids,
            tuning=all_records.tuning_budget(runs[0]),
            tuned=describe_tuning(runs[0], all_records, recipe),
            seeds=tuple(finished),
            state=row_state(ids, all_records),
        )
        rows.append(row)
    rows = _with_variants_named(rows, [runs[0].job for runs in grouped])
    methods: dict[str, set[str]] = {}
    for row in rows:
        methods.setdefault(row.title, set()).add(row.method)
    return [
        replace(row, title=one_line(f"{row.title} ({row.method})")) if len(methods[row.title]) > 1 else row
        for row in rows
    ]


def _with_variants_named(rows: Sequence[Row], specs: Sequence[Spec]) -> list[Row]:
    """Return the rows with titles that tell those of one method and type apart; specs are those of their runs."""
    groups: dict[tuple[str, str], list[int]] = {}
    for place, row in enumerate(rows):
        groups.setdefault((row.type, row.method), []).append(place)
    titles = {}
    for places in groups.values():
        searched = [place for place in places if rows[place].tuned != BY_HAND]
        others = [_values(specs[place]) for place in (searched if len(searched) == 1 else places)]
        for place in places if len(places) > 1 else []:
            values = _values(specs[place])
            changed = {name: value for name, value in values.items() if any(other[name] != value for other in others)}
            if changed or len(searched) != 1:
                titles[place] = one_line(f"{rows[place].title} ({_text_of(changed or values)})")
    return [replace(row, title=titles.get(place, row.title)) for place, row in enumerate(rows)]


def _values(spec: Spec) -> dict[str, Any]:
    """Return a run's hyperparameters and learning rates by name."""
    rates = {PREFIX + name: rate for name, rate in spec.train.lr.model_dump().items()}
    return dict(spec.method.params) | rates


def _text_of(values: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{name}={value:.3g}" if isinstance(value, float) else f"{name}={value}" for name, value in values.items()
    )
