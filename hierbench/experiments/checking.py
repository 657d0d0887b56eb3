"""The board that a command was asked for: runs that are rejected are named on standard error and left out."""

import os
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hierbench.config.options import Place
from hierbench.config.recipe import dataset_name
from hierbench.experiments.verification.checked import Opened, board_of, checked_runs, notes_of, with_limit
from hierbench.experiments.verification.findings import Report
from hierbench.experiments.verification.verify import is_published
from hierbench.leaderboard.board import Board, damaged_runs
from hierbench.leaderboard.columns import PAPER, Column, further
from hierbench.leaderboard.rows import Evidence, Verified
from hierbench.leaderboard.statistics import UNRANKED
from hierbench.runs.store import RUN_ID, Listing, Run, Store
from hierbench.utils.console import say
from hierbench.utils.errors import UserError
from hierbench.utils.text import one_line

LONGEST = 600  # characters of a note
REJECTED = " is rejected and not counted: "
COPIED = "it has the same "


def open_board(
    dataset: str, place: Place, columns: Sequence[Column] = PAPER, numbers: str = "runs", *, apart: bool = True
) -> Opened:
    """Return the board that a command was asked for, verified; what a reader must know goes to standard error.

    Args:
        dataset: its name, or the file of a user's dataset.
        place: a runs folder, a folder of published tables, or the records of one; and prepared data, which gives the
            tree for further columns.
        columns: of the table.
        numbers: "runs", or "paper" for the published table.
        apart: whether with the rows that no others are ranked with: scored here, or printed by other authors.
    """
    if numbers == "paper":
        for what, given in (("a protocol", place.protocol is not None), ("other metrics", tuple(columns) != PAPER)):
            if given:
                raise UserError(f"the paper's tables are as printed: {what} can be chosen for runs alone")
        return Opened(Board.paper(dataset, others=apart), Verified(place.runs), Report(place.runs))
    name = dataset_name(dataset)
    store = Store(place.runs / name if is_published(place.runs, name) else place.runs)
    known, report = checked_runs(dataset, store, place.data_dir, further(columns))
    damaged = damaged_runs(dataset, known)
    note(damaged)  # said first: they may be why there is no table
    try:
        return board_of(dataset, known, report, place.data_dir, place.protocol, columns, scored=apart)
    finally:
        note(with_limit(notes_of(report, damaged), store))  # also where they are why there is no table


def open_folder(path: Path, place: Place, dataset: str | None = None) -> Opened:
    """Return the board of a runs folder, a published table or a submission; the dataset is needed if it has several.

    Args:
        path: FOLDER/<dataset> with records, FOLDER/<dataset>.json beside it, or a folder that holds one such folder.
        place: prepared data and the protocol.
        dataset: its name, or the file of a user's dataset.
    """
    folder = path.with_suffix("") if path.suffix == ".json" else path
    if not folder.is_dir():
        raise UserError(f"{path}: no such folder of records" if path == folder else f"{path} has no folder {folder}")
    if not _has_runs(folder):
        with os.scandir(folder) as entries:
            inside = [entry.name for entry in entries if not entry.name.startswith(".") and _holds_runs(entry)]
        folder = folder / _only(sorted(inside), None if dataset is None else dataset_name(dataset), path)
    if dataset is None:
        found = {name for run in Store(folder).runs() if (name := _dataset_of(run)) is not None}
        dataset = _only(sorted(found), None, path)
    return open_board(dataset, replace(place, runs=folder))


def _only(names: Sequence[str], name: str | None, path: Path) -> str:
    """Return the name if it is among the names, or the only one."""
    if name in names:
        return str(name)
    if name is None and len(names) == 1:
        return names[0]
    if not names:
        raise UserError(f"{path} has no records of runs")
    known = ", ".join(one_line(each, 60) for each in names)
    raise UserError(f"{path} has tables of {known}; " + (f"none of {name}" if name else "choose one with --dataset"))


def _holds_runs(entry: os.DirEntry[str]) -> bool:
    return entry.is_dir(follow_symlinks=False) and _has_runs(Path(entry.path))


def _has_runs(folder: Path) -> bool:
    with os.scandir(folder) as entries:
        return any(RUN_ID.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False) for entry in entries)


def _dataset_of(run: Run) -> str | None:
    """Return the dataset of a record, None where it cannot be read."""
    try:
        content = run.spec()["dataset"]
        return str(content["name"])
    except (UserError, KeyError, TypeError):
        return None


@dataclass(frozen=True)
class _Chosen(Store):
    """A store of which only some runs are looked at."""

    ids: frozenset[str] = frozenset()

    def listing(self) -> Listing:
        runs, lost = super().listing()
        return tuple(run for run in runs if run.folder.name in self.ids), lost


def verified_runs(
    dataset: str, store: Store, ids: Collection[str], data_dir: Path, metrics: Collection[str] = (), hint: str = ""
) -> Verified:
    """Verify the runs that a command asked for and those that they re-rank, and say which are rejected.

    Two methods that predict the same are named and count: whoever runs them here may compare a method with its copy.

    Args:
        dataset: its name, or the file of a user's dataset.
        store: where the runs are.
        ids: of the runs.
        data_dir: prepared data.
        metrics: names of the metrics beyond the paper's that will be shown.
        hint: ends the line of each run that is rejected.
    """
    wanted = frozenset(with_bases(ids, store))
    found, report = checked_runs(dataset, _Chosen(store.root, store.apart, wanted), data_dir, metrics)
    for run in report.runs:
        if run.rejected and all(reason.startswith(COPIED) for reason in run.reasons):
            run.verdict, run.notes, run.reasons = "recomputed", [*run.notes, *run.reasons], []
    lines = [line + hint if REJECTED in line and hint else line for line in notes_of(report)]
    note(with_limit(lines, store))
    verdicts = {run_id: said for run_id, said in report.evidence.verdicts.items() if said in UNRANKED}
    return replace(found, evidence=Evidence(verdicts))


def with_bases(ids: Iterable[str], store: Store) -> list[str]:
    """Return the ids of runs, and of those that they re-rank, at any remove; a run without a spec re-ranks none."""
    found, left = dict[str, None](), list(ids)
    while left:
        run_id = left.pop(0)
        if run_id not in found:
            found[run_id] = None
            try:
                base = store.run(run_id).spec().get("base") or []
            except UserError:
                continue
            left += [base] if isinstance(base, str) else map(str, base)
    return list(found)


def note(lines: Sequence[str]) -> None:
    """Print notes on standard error, each in one line."""
    for line in lines:
        say(f"note: {one_line(line, LONGEST)}")
