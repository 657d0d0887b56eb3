"""Verification of folders of runs and of published records by the evidence in them."""

from collections.abc import Sequence
from pathlib import Path

from hierbench.api.registry import InstalledMethods
from hierbench.leaderboard.open_board import is_published
from hierbench.runs.findings import FolderReport
from hierbench.sharing.verification.inspection import inspect
from hierbench.sharing.verification.method_checks import changed_methods
from hierbench.sharing.verification.published_tables import check_tables, metrics_shown
from hierbench.utils.errors import UserError
from hierbench.utils.text import counted


def verify(
    paths: Sequence[Path],
    data_dir: Path,
    retrain: int = 0,
    weights: Path | None = None,
    *,
    all_metrics: bool = False,
) -> list[FolderReport]:
    """Verify runs folders and folders of published records; nothing in them is trusted, run or changed.

    Args:
        paths: of runs folders, of the records of a published table (`<dataset>/` beside `<dataset>.json`), or folders
            of several published tables.
        data_dir: prepared data, which gives trees and targets where it is that of the runs.
        retrain: how many runs of each folder are trained again, drawn at random.
        weights: file of initial weights that was given to the runs.
        all_metrics: compare all metrics that are kept with runs, also those that no table here shows.

    Raises:
        UserError: a path is no folder, or has no runs; or nothing can be trained again.
    """
    folders = [folder for path in paths for folder in folders_in(path)]
    return [_verify(folder, dataset, data_dir, retrain, weights, all_metrics) for folder, dataset in folders]


def folders_in(path: Path) -> list[tuple[Path, str | None]]:
    """Return (folder of records, dataset of the published table beside it, None for a runs folder)."""
    if not path.is_dir():
        raise UserError(f"no folder {path}")
    name = path.absolute().name
    if is_published(path.absolute().parent, name):
        return [(path, name)]
    inner = [entry for entry in sorted(path.iterdir()) if entry.is_dir() and is_published(path, entry.name)]
    return [(entry, entry.name) for entry in inner] or [(path, None)]


def _verify(
    folder: Path,
    dataset: str | None,
    data_dir: Path,
    retrain: int,
    weights: Path | None,
    all_metrics: bool,
) -> FolderReport:
    """Verify one folder."""
    metrics = None if all_metrics else metrics_shown(folder, dataset)
    checked = inspect(folder, data_dir, metrics=metrics)
    runs = checked.runs
    if not runs:
        raise UserError(f"{folder} has no runs; give a runs folder, or the folder of a published table's records")
    if retrain:
        from hierbench.studies.retraining import train_again  # with all that trains

        train_again(checked.records, runs, retrain, {"data_dir": data_dir, "device": "auto", "weights": weights})
    methods = InstalledMethods()
    report = FolderReport(folder, [run.record for run in runs], checked.rows, notes=list(checked.records.notes))
    changed = changed_methods(report.runs, methods)
    if changed:
        report.notes.append(f"Ran as another file of the installed version (digest of its code): {', '.join(changed)}")
    unchecked = {name for run in runs for name in run.unchecked}
    if unchecked:
        report.notes.append(
            f"Not computed again: {counted(len(unchecked), 'metric')}, kept with runs and shown in no table here; "
            "--all-metrics computes them"
        )
    report.tables = check_tables(checked.records, dataset, data_dir)
    return report
