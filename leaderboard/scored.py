"""Rows of predictions that were made elsewhere and scored here: marked, and only beside runs of the same data."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from pydantic import ValidationError

from hierbench.config.scored import Scored
from hierbench.config.spec import DatasetSpec, Spec
from hierbench.leaderboard.statistics import METRICS, Row, summarise
from hierbench.runs.known import KnownRun
from hierbench.runs.store import RUN_ID, Run, Store
from hierbench.utils.errors import UserError
from hierbench.utils.text import one_line

TYPE = "scored"  # in the column of types: what the model is made of is not known
Records = list[tuple[Scored, Run]]


def scored_records(store: Store) -> Iterator[tuple[Scored, Run]]:
    """Yield the records of scored predictions that are whole, oldest first."""
    for run in store.runs():
        if isinstance(run, KnownRun):  # of a job
            continue
        try:
            if RUN_ID.fullmatch(run.folder.name):
                record = Scored.model_validate(run.spec())
                if run.done and record.id == run.folder.name:
                    yield record, run
        except (ValidationError, UserError):
            continue


def refuse_scored(names: Sequence[str], rows: Sequence[Row], store: Store, dataset: str) -> None:
    """Raise a UserError for a name that is no row of runs, and that of a dataset's scored row."""
    methods = {row.method for row in rows}
    if unknown := [name for name in names if name.partition(":")[0] not in methods]:
        for name in unknown:
            if is_scored_row(name, store, dataset):
                raise UserError(f"{name!r} is a scored row; only rows of runs are compared")


def is_scored_row(name: str, store: Store, dataset: str | None = None) -> bool:
    """Whether a name, perhaps as a table shows it, is that of a scored row, of this dataset if one is given."""
    scored = {record.name for record, _ in scored_records(store) if dataset in (None, record.dataset.name)}
    return not scored.isdisjoint({name, name.removesuffix(" (scored)"), name.removesuffix(f":{TYPE}")})


def scored_rows(dataset: str, store: Store, runs: Spec | None) -> tuple[list[Row], DatasetSpec | None, list[str]]:
    """Return a dataset's scored rows, the data that they are of, and remarks.

    Args:
        dataset: its name.
        store: where the records are; those that are rejected make no row.
        runs: the spec that the table's runs share; None without runs, where the newest record decides.
    """
    records = [
        (record, run)
        for record, run in scored_records(store)
        if record.dataset.name == dataset and run.folder.name not in store.rejected
    ]
    if not records:
        return [], None, []
    data = records[-1][0].dataset if runs is None else runs.dataset
    drops = runs is not None and runs.evaluation.drop_last
    fitting = [one for one in records if one[0].dataset == data and not drops]
    remarks = []
    if left := len(records) - len(fitting):
        why = "other data, another tree or another distance"
        if drops:
            why = "all test images, of which the runs leave out the last incomplete batch"
        remarks.append(f"{left} scored predictions are not in this table: they are of {why}")
    groups: dict[str, Records] = {}
    for record, run in fitting:
        groups.setdefault(record.name, []).append((record, run))
    rows = [_row(name, group) for name, group in groups.items()]
    if rows:
        remarks.append("(scored): predictions made elsewhere and only scored here; backbone and training are not known")
    if any(cell.interval for row in rows for cell in row.metrics.values()):
        remarks.append("in brackets: 95% bootstrap interval over the images of one scored file")
    return rows, data, remarks


def _row(name: str, group: Records) -> Row:
    contents = [run.metrics() for _, run in group]
    results = [content["test"] for content in contents]
    shared = [metric for metric in METRICS if all(metric in result for result in results)]
    values = {
        metric: [float("nan") if result[metric] is None else float(result[metric]) for result in results]
        for metric in shared
    }
    cells = {metric: summarise(of_metric) for metric, of_metric in values.items()}
    intervals = contents[0].get("intervals", {}) if len(group) == 1 else {}
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
        runs=[run.folder.name for _, run in group],
        scored=True,
    )
