"""Rows of predictions that were made elsewhere and scored here: marked, and only beside runs of the same data."""

from collections.abc import Sequence
from dataclasses import replace

from hierbench.config.scored_spec import Scored
from hierbench.config.spec import DatasetSpec, Spec
from hierbench.leaderboard.rows import row_state, summarise_metrics
from hierbench.leaderboard.statistics import Row
from hierbench.runs.record import Record
from hierbench.runs.records import Records
from hierbench.utils.text import one_line

TYPE = "scored"  # in the column of types: the model is not known


def scored_records(records: Records) -> list[tuple[Scored, Record]]:
    """Return each scored spec with its record, damaged ones left out."""
    return [(record.scored, record) for record in records if record.scored is not None and record.done]


def is_scored_row(name: str, records: Records, dataset: str | None = None) -> bool:
    """Whether a name, perhaps as a table shows it, is a scored row, of this dataset if one is given."""
    scored = {spec.name for spec, _ in scored_records(records) if dataset in (None, spec.dataset.name)}
    return not scored.isdisjoint({name, name.removesuffix(" (scored)"), name.removesuffix(f":{TYPE}")})


def scored_rows(dataset: str, records: Records, runs: Spec | None) -> tuple[list[Row], DatasetSpec | None, list[str]]:
    """Return a dataset's scored rows, the data that they are of, and remarks.

    Args:
        dataset: its name.
        records: rejected ones make no row.
        runs: the spec that the table's runs share; None without runs, so that the last scored row decides.
    """
    dataset_pairs = [pair for pair in scored_records(records) if pair[0].dataset.name == dataset]
    if not dataset_pairs:
        return [], None, []
    data = dataset_pairs[-1][0].dataset if runs is None else runs.dataset
    drops = runs is not None and runs.evaluation.drop_last
    fitting = [pair for pair in dataset_pairs if pair[0].dataset == data and not drops]
    remarks = []
    num_others = len(dataset_pairs) - len(fitting)
    if num_others:
        why = "other data, another tree or another distance"
        if drops:
            why = "all test images, of which the runs leave out the last incomplete batch"
        remarks.append(f"{num_others} scored predictions are not in this table: they are of {why}")
    groups: dict[str, list[Record]] = {}
    for scored, record in fitting:
        groups.setdefault(scored.name, []).append(record)
    rows = [_row(name, group, records) for name, group in groups.items()]
    if rows:
        remarks.append("(scored): predictions made elsewhere and only scored here; backbone and training are not known")
    if any(cell.interval for row in rows for cell in row.metrics.values()):
        remarks.append("in brackets: 95% bootstrap interval over the images of one scored file")
    return rows, data, remarks


def _row(name: str, group: Sequence[Record], records: Records) -> Row:
    cells = summarise_metrics([record.metrics for record in group])
    ids = [record.id for record in group]
    intervals = group[0].result.get("intervals", {}) if len(group) == 1 else {}
    for metric in cells.keys() & intervals.keys():
        low, high = intervals[metric]
        cells[metric] = replace(cells[metric], interval=None if low is None else (low, high))
    return Row(
        type=TYPE,
        method=name,
        title=one_line(f"{name} (scored)"),
        n=len(group),
        planned=len(group),
        metrics=cells,
        runs=ids,
        scored=True,
        state=row_state(ids, records),
    )
