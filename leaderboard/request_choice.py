"""The choice of runs for a table: the last comparison of a dataset, or a named one, sets the settings."""

from collections.abc import Mapping, Sequence

from hierbench.config.options import folder_options
from hierbench.config.recipe import dataset_name, recipe_names
from hierbench.config.sections import Protocol
from hierbench.runs.record import Record
from hierbench.runs.records import Records
from hierbench.runs.requests import ID_DIGITS, SHOWN_DIGITS, Request, oldest_first
from hierbench.utils.errors import UserError, unknown_name
from hierbench.utils.text import one_line

OTHER_SETTINGS = "finished runs with other settings are not in this table"
LISTED = 6  # requests in an error, and in the line on runs that are left out


class NoRunsError(UserError):
    """There are no runs to make a table of."""


def tested_runs(name: str, records: Records, ids: Sequence[str] | None) -> list[Record]:
    """Return the runs of a dataset that have test results; without `ids` not those of an ablation alone."""
    ablated = records.ablated
    candidates = records if ids is None else [record for run_id in ids if (record := records.get(run_id)) is not None]
    return [
        record
        for record in candidates
        if record.spec is not None and record.spec.dataset.name == name and record.spec.split == "test"
        if ids is not None or record.id not in ablated
    ]


def no_runs(dataset: str, records: Records, protocol: Protocol | None) -> NoRunsError:
    """Return the error that says how to make runs of a dataset."""
    name = dataset_name(dataset)
    if name == dataset and name not in recipe_names():
        datasets = {one_line(record.spec.dataset.name) for record in records if record.spec is not None}
        absent = "" if records.root.is_dir() else f"; no folder {records.root}, whose datasets would be known too"
        return NoRunsError(f"{unknown_name('recipe', dataset, datasets.union(recipe_names()))}{absent}")
    which, option = (f" under protocol {protocol}", f" --protocol {protocol}") if protocol else ("", "")
    command = f"run: hierbench run --methods paper --dataset {dataset}{option}{folder_options(records.root)}"
    if not records.root.is_dir():
        return NoRunsError(f"no runs of {name}{which}: no folder {records.root}; {command}")
    return NoRunsError(f"no runs of {name}{which} in {records.root}; {command}")


def choose(
    records: Sequence[Record], requests: Sequence[Request], id_prefix: str | None = None
) -> tuple[list[Record], Record, str]:
    """Return the runs of a table: all comparable with the newest finished run of a comparison.

    Runs that no comparison names come first, as if each of their settings had been a request.

    Args:
        records: of one dataset; one or more.
        requests: of their folder, oldest first.
        id_prefix: the beginning of a request's id, which counts as the last one; None for the last.

    Returns:
        The runs in request order, the run that sets the table's settings, and a line on runs that are left out, else
        "".

    Raises:
        UserError: there is no such request, or several.
    """
    record_by_id = {record.id: record for record in records}
    started = {record.id: record.started for record in records}
    comparisons = _comparisons(record_by_id, requests)
    chosen = None if id_prefix is None else _find(id_prefix, comparisons)
    if chosen is not None:
        comparisons = [*(request for request in comparisons if request is not chosen), chosen]
    in_order = [record_by_id[run_id] for run_id in oldest_first(record_by_id, comparisons, started)]
    shown = in_order if chosen is None else [record_by_id[run_id] for run_id in chosen.ids if run_id in record_by_id]
    newest = newest_finished(shown)
    left_out = [
        record
        for record in in_order
        if record.done and record.comparison != newest.comparison and record.job.protocol == newest.job.protocol
    ]
    return comparable(in_order, newest), newest, _line(left_out, comparisons)


def newest_finished(records: Sequence[Record]) -> Record:
    """Return the last finished run, else the last run."""
    return next((record for record in reversed(records) if record.done), records[-1])


def comparable(records: Sequence[Record], newest: Record, *, with_bases: bool = True) -> list[Record]:
    """Return the runs that may be ranked with the newest; `with_bases` drops re-ranked runs that lack a base.

    Code may differ between methods, learning rates between the types of a method; within one, the last counts.
    Re-ranked runs have the learning rates of their first base.
    """
    same_comparison = [record for record in records if record.comparison == newest.comparison]
    rates = {(record.job.method.name, record.job.type): record.job.train.lr for record in same_comparison}
    code = {record.job.method.name: (record.job.method.version, record.job.method.code) for record in same_comparison}
    same_comparison = [
        record
        for record in same_comparison
        if record.job.train.lr == rates[record.job.method.name, record.job.type]
        and (record.job.method.version, record.job.method.code) == code[record.job.method.name]
    ]
    ids = {record.id for record in same_comparison}
    return [record for record in same_comparison if not with_bases or ids.issuperset(record.bases)]


def _comparisons(record_by_id: Mapping[str, Record], requests: Sequence[Request]) -> list[Request]:
    """Return the comparisons that name these runs, after one for each settings of the other runs."""
    comparisons = (request for request in requests if request.kind == "comparison")
    recorded = [request for request in comparisons if not record_by_id.keys().isdisjoint(request.ids)]
    named = {run_id for request in recorded for run_id in request.ids}
    groups: dict[str, list[str]] = {}
    started = {run_id: record.started for run_id, record in record_by_id.items()}
    unnamed = oldest_first((run_id for run_id in record_by_id if run_id not in named), (), started)
    for run_id in unnamed:
        groups.setdefault(record_by_id[run_id].comparison, []).append(run_id)
    place = {run_id: number for number, run_id in enumerate(unnamed)}
    implied = [
        Request(
            id=comparison[:ID_DIGITS],
            kind="comparison",
            dataset=record_by_id[ids[0]].job.dataset.name,
            options={"methods": ",".join(dict.fromkeys(record_by_id[run_id].job.method.name for run_id in ids))},
            ids=tuple(ids),
        )
        for comparison, ids in sorted(groups.items(), key=lambda group: place[group[1][-1]])
    ]
    return [*implied, *recorded]


def _find(id_prefix: str, requests: Sequence[Request]) -> Request:
    matches = [request for request in requests if id_prefix and request.id.startswith(id_prefix)]
    if len(matches) == 1:
        return matches[0]
    choices = "; ".join(request.line for request in (matches or requests)[: -LISTED - 1 : -1])
    dataset = one_line(requests[0].dataset, 60)
    problem = f"{len(matches)} comparisons of" if matches else "no comparison of"
    raise UserError(f"--request {id_prefix}: {problem} {dataset} here with such an id; there are {choices}")


def _line(left_out: Sequence[Record], requests: Sequence[Request]) -> str:
    """Return how many finished runs a table leaves out, and the requests that show them, the last first."""
    if not left_out:
        return ""
    number = {run_id: number for number, request in enumerate(requests) for run_id in request.ids}
    last = {record.comparison: number[record.id] for record in left_out}  # of each settings
    ids = [requests[number].id for number in sorted(set(last.values()), reverse=True)]
    lengths = range(SHOWN_DIGITS, ID_DIGITS + 1)
    digits = next(n for n in lengths if len({request.id[:n] for request in requests}) == len(requests))
    ways = " or ".join(f"--request {request_id[:digits]}" for request_id in ids[:LISTED])
    return f"{len(left_out)} {OTHER_SETTINGS}: {ways} shows them"
