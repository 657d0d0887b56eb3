"""Verification of folders of runs and of published records: what follows from the evidence in them."""

import os
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from hierbench.config.options import Device
from hierbench.experiments.verification.findings import Report
from hierbench.experiments.verification.further import check_further
from hierbench.experiments.verification.methods import Methods, check_method
from hierbench.experiments.verification.posthoc import check_reranked
from hierbench.experiments.verification.predictions import Loader, Targets, recompute
from hierbench.experiments.verification.records import WHAT_FAILS, Record, read_record
from hierbench.experiments.verification.tables import check_tables
from hierbench.experiments.verification.together import check_together
from hierbench.experiments.verification.values import check_values
from hierbench.hierarchy.readers import shipped_names, shipped_paths
from hierbench.hierarchy.tree import Distance, Hierarchy
from hierbench.runs.evidence import Trees
from hierbench.runs.store import Store
from hierbench.utils.errors import UserError, one_line_of


def verify(paths: Sequence[Path], data_dir: Path, retrain: int = 0, device: Device = "auto") -> list[Report]:
    """Verify runs folders and folders of published records; nothing in them is trusted, run or changed.

    Args:
        paths: of runs folders, of the records of a published table (`<dataset>/` beside `<dataset>.json`), or folders
            of several published tables.
        data_dir: prepared data, which gives trees and targets where it is that of the runs.
        retrain: how many runs of each folder are trained again, drawn at random.
        device: to train them on.

    Raises:
        UserError: a path is no folder, or has no runs; or nothing can be trained again.
    """
    folders = [folder for path in paths for folder in folders_in(path)]
    return [_verify(folder, dataset, data_dir, retrain, device) for folder, dataset in folders]


def folders_in(path: Path) -> list[tuple[Path, str | None]]:
    """Return (folder of records, dataset of the published table beside it, None for a runs folder)."""
    if not path.is_dir():
        raise UserError(f"no folder {path}")
    name = path.absolute().name
    if _is_published(path.parent, name):
        return [(path, name)]
    inner = [entry for entry in sorted(path.iterdir()) if entry.is_dir() and _is_published(path, entry.name)]
    return [(entry, entry.name) for entry in inner] or [(path, None)]


def _is_published(folder: Path, dataset: str) -> bool:
    return any(os.path.lexists(folder / f"{dataset}{suffix}") for suffix in (".json", ".md"))


def _verify(folder: Path, dataset: str | None, data_dir: Path, retrain: int, device: Device) -> Report:
    """Verify one folder."""
    store = Store(folder)
    runs = [*store.runs(), *store.lost()]
    if not runs:
        raise UserError(f"{folder} has no runs; give a runs folder, or the folder of a published table's records")
    records = {record.run.folder.name: record for record in map(read_record, runs)}
    loader, known, trees, methods = Loader(), Targets(data_dir, folder), Trees(data_dir), Methods()
    for record in sorted(records.values(), key=_place):
        if record.metrics:
            try:
                _check(record, records, store, loader, known, trees, methods)
            except WHAT_FAILS as error:
                record.finding.reject(f"its record is malformed: {one_line_of(error)}")
    rows = check_together(list(records.values()), known)
    if retrain:
        from hierbench.experiments.verification.retrain import train_again  # with all that trains

        train_again(list(records.values()), retrain, data_dir, device)
    tables = check_tables(folder, dataset, store, data_dir)
    in_order = sorted(records.values(), key=_place_in_report)
    return Report(folder, [record.finding for record in in_order], rows, tables)


def _check(
    record: Record,
    records: Mapping[str, Record],
    store: Store,
    loader: Loader,
    known: Targets,
    trees: Trees,
    methods: Methods,
) -> None:
    """Check one finished run by itself, and against its bases."""
    tree = _tree_of(record, trees)
    if tree is not None:
        check_values(record, tree)
        if record.is_tested and record.is_intact:
            recompute(record, tree, loader, known)
            check_further(record, store, tree)
    if record.spec is not None:
        check_method(record, tree, methods)
        if record.spec.bases:
            check_reranked(record, records, tree, loader, methods)


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


def _tree_of(record: Record, trees: Trees) -> Hierarchy | None:
    """Return the tree that a run is on, None with a note where it is not here."""
    data = record.dataset
    try:
        return trees.of(record.run)
    except UserError as error:
        if (shipped := _shipped_tree(data.hierarchy, data.distance, data.name)) is not None:
            return shipped
        record.finding.note(f"nothing is computed: {error}")
    return None


@lru_cache(maxsize=16)
def _shipped_tree(digest: str, distance: Distance, name: str) -> Hierarchy | None:
    """Return the tree with a digest among those that the project ships, perhaps for a dataset of another name."""
    for other in sorted(shipped_names(), key=lambda other: not name.startswith(other)):
        tree = Hierarchy.from_paths(shipped_paths(other), distance)
        if tree.digest() == digest:
            return tree
    return None
