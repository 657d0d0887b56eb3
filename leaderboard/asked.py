"""Which runs are in a table: the last comparison of a dataset, or one that is named, chooses the settings."""

from collections.abc import Mapping, Sequence

from hierbench.config.options import folder_options
from hierbench.config.recipe import dataset_name, recipe_names
from hierbench.config.sections import Protocol
from hierbench.runs.record import Record, Records
from hierbench.runs.requests import ID_DIGITS, SHOWN_DIGITS, Request, oldest_first
from hierbench.utils.errors import UserError, unknown_name
from hierbench.utils.text import one_line

OTHER_SETTINGS = "finished runs with other settings are not in this table"
LISTED = 6  # requests in an error, and in the line on what is left out


class NoRunsError(UserError):
    """There are no runs to make a table of."""


def tested_runs(name: str, records: Records, ids: Sequence[str] | None) -> list[Record]:
    """Return the runs of a dataset that have test results; without `ids` not those of an ablation alone."""
    ablated = records.ablated
    found = records if ids is None else [record for run_id in ids if (record := records.get(run_id)) is not None]
    return [
        record
        for record in found
        if record.spec is not None and record.spec.dataset.name == name and record.spec.split == "test"
        if ids is not None or record.id not in ablated
    ]


def no_runs(dataset: str, records: Records, protocol: Protocol | None) -> NoRunsError:
    """Return the error that says how to make runs of a dataset."""
    name = dataset_name(dataset)
    if name == dataset and name not in recipe_names():
        there = {one_line(record.spec.dataset.name) for record in records if record.spec is not None}
        absent = "" if records.root.is_dir() else f"; no folder {records.root}, whose datasets would be known too"
        return NoRunsError(f"{unknown_name('recipe', dataset, there.union(recipe_names()))}{absent}")
    which, option = (f" under protocol {protocol}", f" --protocol {protocol}") if protocol else ("", "")
    command = f"run: hierbench run --methods paper --dataset {dataset}{option}{folder_options(records.root)}"
    if not records.root.is_dir():
        return NoRunsError(f"no runs of {name}{which}: no folder {records.root}; {command}")
    return NoRunsError(f"no runs of {name}{which} in {records.root}; {command}")


def choose(
    records: Sequence[Record], requests: Sequence[Request], wanted: str | None = None
) -> tuple[list[Record], Record, str]:
    """Return the runs of a table: all that are comparable with the last one that a comparison asked for and has ended.

    Runs that no comparison names come before all others, and make a request of their own for each of their settings.

    Args:
        records: of one dataset; one or more.
        requests: of their folder, oldest first.
        wanted: the beginning of a request's id, which counts as the last one; None for the last.

    Returns:
        The runs in the order of asking, the one whose settings the table has, and a line on what is left out, "" where
        nothing is.

    Raises:
        UserError: there is no such request, or several.
    """
    known, started = {record.id: record for record in records}, {record.id: record.started for record in records}
    asked = _comparisons(known, requests)
    one = None if wanted is None else _find(wanted, asked)
    if one is not None:
        asked = [*(request for request in asked if request is not one), one]
    in_order = [known[run_id] for run_id in oldest_first(known, asked, started)]
    shown = in_order if one is None else [known[run_id] for run_id in one.ids if run_id in known]
    newest = newest_of(shown)
    left = [
        record
        for record in in_order
        if record.done and record.comparison != newest.comparison and record.job.protocol == newest.job.protocol
    ]
    return comparable(in_order, newest), newest, _line(left, asked)


def newest_of(records: Sequence[Record]) -> Record:
    """Return the last that is finished, or the last."""
    return next((one for one in reversed(records) if one.done), records[-1])


def comparable(records: Sequence[Record], newest: Record, *, with_bases: bool = True) -> list[Record]:
    """Return those that may be ranked with the newest; `with_bases` drops re-ranked ones that lack a base.

    Code may differ between methods, learning rates between the types of a method; within one, the last counts.
    Re-ranked runs have the learning rates of their first base.
    """
    found = [one for one in records if one.comparison == newest.comparison]
    rates = {(one.job.method.name, one.job.type): one.job.train.lr for one in found}
    code = {one.job.method.name: (one.job.method.version, one.job.method.code) for one in found}
    found = [
        one
        for one in found
        if one.job.train.lr == rates[one.job.method.name, one.job.type]
        and (one.job.method.version, one.job.method.code) == code[one.job.method.name]
    ]
    ids = {one.id for one in found}
    return [one for one in found if not with_bases or ids.issuperset(one.bases)]


def _comparisons(known: Mapping[str, Record], requests: Sequence[Request]) -> list[Request]:
    """Return the comparisons that name these runs, after one for each settings of the runs that none names."""
    recorded = [one for one in requests if one.kind == "comparison" and not known.keys().isdisjoint(one.ids)]
    named = {run_id for one in recorded for run_id in one.ids}
    groups: dict[str, list[str]] = {}
    started = {run_id: record.started for run_id, record in known.items()}
    unnamed = oldest_first((run_id for run_id in known if run_id not in named), (), started)
    for run_id in unnamed:
        groups.setdefault(known[run_id].comparison, []).append(run_id)
    place = {run_id: number for number, run_id in enumerate(unnamed)}
    implied = [
        Request(
            id=comparison[:ID_DIGITS],
            kind="comparison",
            dataset=known[ids[0]].job.dataset.name,
            options={"methods": ",".join(dict.fromkeys(known[run_id].job.method.name for run_id in ids))},
            ids=tuple(ids),
        )
        for comparison, ids in sorted(groups.items(), key=lambda group: place[group[1][-1]])
    ]
    return [*implied, *recorded]


def _find(wanted: str, asked: Sequence[Request]) -> Request:
    found = [one for one in asked if wanted and one.id.startswith(wanted)]
    if len(found) == 1:
        return found[0]
    there = "; ".join(one.line for one in (found or asked)[: -LISTED - 1 : -1])
    dataset = one_line(asked[0].dataset, 60)
    what = f"{len(found)} comparisons of" if found else "no comparison of"
    raise UserError(f"--request {wanted}: {what} {dataset} here with such an id; there are {there}")


def _line(left: Sequence[Record], asked: Sequence[Request]) -> str:
    """Return how many finished runs a table leaves out, and the requests that show them, the last first."""
    if not left:
        return ""
    number = {run_id: number for number, one in enumerate(asked) for run_id in one.ids}
    last = {record.comparison: number[record.id] for record in left}  # of each settings
    ids = [asked[number].id for number in sorted(set(last.values()), reverse=True)]
    digits = next(n for n in range(SHOWN_DIGITS, ID_DIGITS + 1) if len({one.id[:n] for one in asked}) == len(asked))
    ways = " or ".join(f"--request {request_id[:digits]}" for request_id in ids[:LISTED])
    return f"{len(left)} {OTHER_SETTINGS}: {ways} shows them"
