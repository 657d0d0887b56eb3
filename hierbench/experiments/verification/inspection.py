"""The runs of one folder, each checked by itself, and then against each other."""

from collections.abc import Collection, Sequence
from pathlib import Path

from hierbench.experiments.verification.cache import Cache
from hierbench.experiments.verification.findings import Finding
from hierbench.experiments.verification.records import Record, read_record
from hierbench.experiments.verification.together import check_together
from hierbench.runs.store import Run, Store
from hierbench.utils.errors import UserError


def inspect(
    store: Store,
    data_dir: Path,
    dataset: str | None = None,
    *,
    metrics: Collection[str] | None = (),
    anew: bool = False,
    runs: Sequence[Run] | None = None,
) -> tuple[list[Record], list[Finding]]:
    """Return the records of a folder with what was found of each, and the findings of the rows that they make.

    Args:
        store: of the folder; nothing in it is trusted, run or changed.
        data_dir: prepared data, which gives trees and targets where it is that of the runs.
        dataset: only runs that say they are of it; None for all, and for what says nothing.
        metrics: names of the metrics beyond the paper's that are compared where they are kept; None for all.
        anew: check every run, also those whose findings are in the cache and still hold.
        runs: of the store, where they were listed already.
    """
    runs, cache = list(store.runs() if runs is None else runs), Cache(store.root, data_dir)
    kept = {} if anew else cache.read(runs, metrics)
    if dataset is None:
        runs += store.lost()
    else:
        runs = [run for run in runs if _is_of(run, kept.get(run.folder.name), dataset)]
    records = {run.folder.name: kept.get(run.folder.name) or _read(run, cache) for run in runs}
    new = [record for name, record in records.items() if name not in kept and record.metrics]
    if new:
        from hierbench.experiments.verification.alone import Checks  # with PyTorch

        checks = Checks(store, data_dir, metrics)
        for record in sorted(new, key=_place):
            checks.check(record, records)
            cache.keep(record, checks.sources_of(record))
            record.history = []  # of thousands of runs it takes more memory than all else
        cache.write()
    rows = check_together(list(records.values()))
    return sorted(records.values(), key=_place_in_report), rows


def _read(run: Run, cache: Cache) -> Record:
    cache.state(run.folder)  # as it is before anything is read
    return read_record(run)


def _is_of(run: Run, kept: Record | None, dataset: str) -> bool:
    if kept is not None and (kept.spec or kept.scored):
        return kept.dataset.name == dataset
    try:
        data = run.spec().get("dataset")
    except UserError:
        return False
    return isinstance(data, dict) and data.get("name") == dataset


def _place(record: Record) -> tuple[str, str, int, str, bool]:
    """Return a key that puts a base right before what re-ranks it, whose predictions are then still in memory."""
    spec = record.spec
    if spec is None:
        return ("", "", 0, record.run.folder.name, False)
    first = spec.bases[0] if spec.bases else record.run.folder.name
    return (spec.dataset.name, spec.type, spec.seed, first, bool(spec.bases))


def _place_in_report(record: Record) -> tuple[str, str, int, str, str]:
    """Return a key that orders runs by dataset, method, type and seed."""
    spec = record.spec
    if spec is None:
        return ("", "", 0, record.finding.label, record.run.folder.name)
    return (f"{spec.dataset.name} {spec.method.name}", spec.type, spec.seed, "", record.run.folder.name)
