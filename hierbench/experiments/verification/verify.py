"""Verification of folders of runs and of published records: what follows from the evidence in them."""

import os
from collections.abc import Sequence
from pathlib import Path

from hierbench.config.options import Device
from hierbench.experiments.verification.findings import Report
from hierbench.experiments.verification.inspection import inspect
from hierbench.experiments.verification.tables import check_tables, metrics_shown
from hierbench.runs.store import Store
from hierbench.utils.errors import UserError


def verify(
    paths: Sequence[Path], data_dir: Path, retrain: int = 0, device: Device = "auto", *, all_metrics: bool = False
) -> list[Report]:
    """Verify runs folders and folders of published records; nothing in them is trusted, run or changed.

    Args:
        paths: of runs folders, of the records of a published table (`<dataset>/` beside `<dataset>.json`), or folders
            of several published tables.
        data_dir: prepared data, which gives trees and targets where it is that of the runs.
        retrain: how many runs of each folder are trained again, drawn at random.
        device: to train them on.
        all_metrics: compare all metrics that are kept with runs, also those that no table here shows.

    Raises:
        UserError: a path is no folder, or has no runs; or nothing can be trained again.
    """
    folders = [folder for path in paths for folder in folders_in(path)]
    return [_verify(folder, dataset, data_dir, retrain, device, all_metrics) for folder, dataset in folders]


def folders_in(path: Path) -> list[tuple[Path, str | None]]:
    """Return (folder of records, dataset of the published table beside it, None for a runs folder)."""
    if not path.is_dir():
        raise UserError(f"no folder {path}")
    name = path.absolute().name
    if is_published(path.absolute().parent, name):
        return [(path, name)]
    inner = [entry for entry in sorted(path.iterdir()) if entry.is_dir() and is_published(path, entry.name)]
    return [(entry, entry.name) for entry in inner] or [(path, None)]


def is_published(folder: Path, dataset: str) -> bool:
    """Whether a folder has the published table of a dataset, whose records are in `<dataset>/`."""
    return any(os.path.lexists(folder / f"{dataset}{suffix}") for suffix in (".json", ".md"))


def _verify(
    folder: Path, dataset: str | None, data_dir: Path, retrain: int, device: Device, all_metrics: bool
) -> Report:
    """Verify one folder."""
    store, metrics = Store(folder), None if all_metrics else metrics_shown(folder, dataset)
    records, rows = inspect(store, data_dir, metrics=metrics, anew=True)
    if not records:
        raise UserError(f"{folder} has no runs; give a runs folder, or the folder of a published table's records")
    if retrain:
        from hierbench.experiments.verification.retrain import train_again  # with all that trains

        train_again(records, retrain, data_dir, device)
    report = Report(folder, [record.finding for record in records], rows)
    if left := {name for record in records for name in record.unchecked}:
        report.notes.append(
            f"Not computed again: {len(left)} metrics that are kept with runs and that no table here shows; "
            "--all-metrics computes them"
        )
    report.tables = check_tables(report, dataset, store, data_dir)
    return report
