"""The runs that count, for every command that shows them: rejected ones are named on standard error and left out."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hierbench.config.recipe import dataset_name
from hierbench.config.sections import Protocol
from hierbench.experiments.verification.checked import (
    Opened,
    Verified,
    board_of,
    checked_runs,
    notes_of,
    with_limit,
)
from hierbench.experiments.verification.verify import is_published
from hierbench.leaderboard.board import damaged_runs
from hierbench.leaderboard.columns import PAPER, Column, further
from hierbench.runs.store import Listing, Store
from hierbench.utils.console import say
from hierbench.utils.errors import UserError
from hierbench.utils.text import one_line

LONGEST = 600  # characters of a note
REJECTED = " is rejected and not counted: "
COPIED = "it has the same "


@dataclass(frozen=True)
class Counted:
    """What a table or a figure may be made of.

    Attributes:
        store: the verified runs.
        rejected: ids of those of them that do not count.
    """

    store: Verified
    rejected: frozenset[str]


@dataclass(frozen=True)
class _Chosen(Store):
    """A store of which only some runs are looked at."""

    ids: frozenset[str] = frozenset()

    def listing(self) -> Listing:
        runs, lost = super().listing()
        return tuple(run for run in runs if run.folder.name in self.ids), lost


def store_of(dataset: str, runs: Path) -> Store:
    """Return the runs of a folder; of a folder of published tables, the records of the dataset's."""
    name = dataset_name(dataset)
    return Store(runs / name if is_published(runs, name) else runs)


def open_board(
    dataset: str,
    runs: Path,
    data_dir: Path,
    protocol: Protocol | None = None,
    columns: Sequence[Column] = PAPER,
    *,
    scored: bool = True,
) -> Opened:
    """Return the board that a command was asked for, verified; what a reader must know goes to standard error.

    Args:
        dataset: its name, or the file of a user's dataset.
        runs: a runs folder, a folder of published tables, or the records of one.
        data_dir: prepared data, which gives the tree for further columns.
        protocol: of the runs; None takes that of the newest.
        columns: of the table.
        scored: whether with the rows of predictions made elsewhere.
    """
    store = store_of(dataset, runs)
    known, report = checked_runs(dataset, store, data_dir, further(columns))
    damaged = damaged_runs(dataset, known)
    note(damaged)  # said first: they may be why there is no table
    try:
        return board_of(dataset, known, report, data_dir, protocol, columns, scored=scored)
    finally:
        note(with_limit(notes_of(report, damaged), store))  # also where they are why there is no table


def counted(dataset: str, store: Store, data_dir: Path, metrics: Collection[str] = ()) -> Counted:
    """Verify the runs of a dataset, say what a reader must know, and return those that count.

    Args:
        dataset: its name, or the file of a user's dataset.
        store: of a runs folder or of the records of a published table.
        data_dir: prepared data.
        metrics: names of the metrics beyond the paper's that will be shown.
    """
    found, report = checked_runs(dataset, store, data_dir, metrics)
    damaged = damaged_runs(dataset, found)
    note([*damaged, *with_limit(notes_of(report, damaged), store)])
    return Counted(found, report.rejected_ids)


def counted_of(
    dataset: str, store: Store, ids: Collection[str], data_dir: Path, metrics: Collection[str] = (), hint: str = ""
) -> Counted:
    """Verify some runs and those that they re-rank, as `counted`; `hint` ends the line of each that is rejected.

    Two methods that predict the same are named and count: whoever runs them here may compare a method with its copy.
    """
    wanted = frozenset(with_bases(ids, store))
    found, report = checked_runs(dataset, _Chosen(store.root, store.apart, wanted), data_dir, metrics)
    for run in report.runs:
        if run.rejected and all(reason.startswith(COPIED) for reason in run.reasons):
            run.verdict, run.notes, run.reasons = "recomputed", [*run.notes, *run.reasons], []
    lines = [line + hint if REJECTED in line and hint else line for line in notes_of(report)]
    note(with_limit(lines, store))
    return Counted(found, report.rejected_ids)


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
