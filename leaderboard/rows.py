"""The rows of a table, from the records of its runs; a scored row comes from `hierbench.leaderboard.scored`."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from hierbench.leaderboard.statistics import METRICS, Cell, Row, summarise
from hierbench.runs.record import Record, Records, differing_params
from hierbench.runs.state import State, weakest
from hierbench.utils.text import one_line


def state_of(ids: Sequence[str], records: Records) -> State | None:
    """Return the weakest state of a row's finished runs, None where it has none."""
    if any(run_id in records.apart for run_id in ids):
        return State.REJECTED
    return weakest(record.state for run_id in ids if (record := records.get(run_id)) is not None and record.done)


def evidence_of(rows: Sequence[Row], records: Records) -> str:
    """Return how many runs of a table have which state, "" where there are none."""
    there = [record for row in rows for run_id in row.runs if (record := records.get(run_id)) is not None]
    counts = Counter(record.state.words for record in there if record.state != State.UNFINISHED)
    said = [f"{counts[words]} {words}" for words in dict.fromkeys(state.words for state in State) if counts[words]]
    first, _, rest = (said[0] if said else "").partition(" ")
    return ", ".join([f"{first} run{'' if first == '1' else 's'} {rest}", *said[1:]]) if said else ""


def cells_of(results: Sequence[Mapping[str, Any]], ddof: int = 1) -> dict[str, Cell]:
    """Return the cells of a row from the metrics of its runs, of those metrics that all have."""
    names = [metric for metric in METRICS if all(metric in result for result in results)]
    values = {name: [math.nan if (value := r[name]) is None else float(value) for r in results] for name in names}
    return {name: summarise(of_metric, ddof) for name, of_metric in values.items()}


def rows_of(records: Sequence[Record], known: Records) -> list[Row]:
    """Group runs by type and method; different hyperparameters make separate rows.

    A title that several methods share is followed by each one's name. A seed counts once: of runs of several versions
    the newest that is done, otherwise the first.

    Args:
        records: runs that may be ranked together.
        known: all runs of their folder, which say how these were tuned.
    """
    groups: dict[tuple[str, str, str], dict[int, Record]] = {}
    for record in records:
        spec = record.job
        seeds = groups.setdefault((spec.type, spec.method.name, record.row), {})
        if record.done or spec.seed not in seeds:
            seeds[spec.seed] = record
    rows: list[Row] = []
    variants = Counter((feature_type, method) for feature_type, method, _ in groups)
    differing = differing_params(records)
    for (feature_type, method, _), group in groups.items():
        runs = [group[seed] for seed in sorted(group)]
        finished = {record.job.seed: record for record in runs if record.done}
        spec, results = runs[0].job, [record.metrics for record in finished.values()]
        title = one_line(next((record.title for record in finished.values()), method))
        if variants[feature_type, method] > 1:
            every = ", ".join(f"{name}={value}" for name, value in spec.method.params.items())
            title = one_line(f"{title} ({differing.get(runs[0].id, every)})")
        ids = tuple(record.id for record in runs)
        row = Row(
            type=feature_type,
            method=method,
            title=title,
            n=len(finished),
            planned=len(runs),
            metrics=cells_of(results, spec.evaluation.ddof),
            runs=ids,
            tuning=known.budget_of(runs[0]),
            seeds=tuple(finished),
            state=state_of(ids, known),
        )
        rows.append(row)
    methods: dict[str, set[str]] = {}
    for row in rows:
        methods.setdefault(row.title, set()).add(row.method)
    return [
        replace(row, title=one_line(f"{row.title} ({row.method})")) if len(methods[row.title]) > 1 else row
        for row in rows
    ]
