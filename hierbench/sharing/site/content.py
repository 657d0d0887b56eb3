"""What a site is made of: the tables of a folder as verification leaves them, and what stands beside their records."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from hierbench.config.options import Place
from hierbench.config.recipe import title_of
from hierbench.config.source import is_dataset_file
from hierbench.leaderboard.board import Board
from hierbench.leaderboard.columns import PAPER, Column, further
from hierbench.leaderboard.measured import with_columns
from hierbench.leaderboard.statistics import Row
from hierbench.records.findings import VERDICTS, Finding, Report
from hierbench.records.reading import read_records
from hierbench.sharing.card import FILE, Card, read_card
from hierbench.sharing.changes import Entry, read_changes
from hierbench.sharing.place import BOARDS, SUBMISSIONS
from hierbench.sharing.verification.checked import checked_board, checked_records
from hierbench.sharing.verification.tables import GivenTable, protocol_of, values_are_kept
from hierbench.utils.errors import UserError

NOT_OF_IT = "its spec cannot be read, or is of another dataset"
MOST_CHANGES = 20  # that pages list of a table


@dataclass
class Table:
    """One published table.

    Attributes:
        dataset: as the folder names it.
        submission: folder of the submission that it is part of, "" for none.
        folder: with `<dataset>.json`.
        records: the folder of its records.
        board: what follows from the records that verification did not reject; without rows where nothing does.
        report: what verification says, without the paths of this machine.
        trouble: why the board has no rows, "" where it has.
    """

    dataset: str
    submission: str
    folder: Path
    records: Path
    board: Board
    report: Report
    trouble: str = ""

    @property
    def title(self) -> str:
        """The title of its dataset, and of which submission it is."""
        title = self.dataset if is_dataset_file(self.dataset) else title_of(self.dataset)
        return f"{self.submission}: {title}" if self.submission else title

    @cached_property
    def runs(self) -> dict[str, Finding]:
        """What is said of each run, by id."""
        return {run.id: run for run in self.report.runs}

    @cached_property
    def card(self) -> Card | None:
        """Who stands behind it, None where no card says so."""
        try:
            return read_card(self.folder)
        except UserError:
            return None

    @property
    def has_odd_card(self) -> bool:
        """Whether it has a card that cannot be read."""
        return self.card is None and os.path.lexists(self.folder / FILE)

    @cached_property
    def changes(self) -> Sequence[Entry]:
        """Its publications, newest first."""
        return read_changes(self.folder, self.dataset)[:MOST_CHANGES]

    def counts(self) -> dict[str, int]:
        """Return how many runs have each verdict, none left out but the zeros."""
        return {verdict: number for verdict, number in self.report.counts().items() if number}

    def verdict_of(self, row: Row) -> str:
        """Return the weakest verdict of a row's runs, "" for a row without any."""
        found = [self.runs[run].verdict for run in row.runs if run in self.runs]
        return row.verdict or max(found, key=VERDICTS.index, default="")

    @property
    def rejected(self) -> list[Finding]:
        """The published files and the rows that are rejected."""
        return [said for said in (*self.report.tables, *self.report.rows) if said.rejected]


def find_tables(folder: Path) -> list[tuple[str, Path, str]]:
    """Return (submission, folder, dataset) of each published table; the submission is "" for one that is of none."""
    if not folder.is_dir():
        raise UserError(f"no folder {folder}")
    submissions = [(name, folder / SUBMISSIONS / name) for name in _folders_in(folder / SUBMISSIONS)]
    places = [("", folder), *(("", folder / name) for name in _folders_in(folder) if name == BOARDS), *submissions]
    found = [
        (name, place, dataset)
        for name, place in places
        for dataset in _folders_in(place)
        if (place / f"{dataset}.json").is_file()
    ]
    if not found:
        raise UserError(
            f"{folder} has no published table (<dataset>.json beside <dataset>/), and no submission has one"
        )
    return found


def _folders_in(folder: Path) -> list[str]:
    if folder.is_symlink() or not folder.is_dir():
        return []
    return sorted(entry.name for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False))


def read_table(folder: Path, dataset: str, submission: str, data_dir: Path) -> Table:
    """Return a published table as verification leaves it; where nothing is left, with the reason and no rows."""
    folder, data_dir = folder.absolute(), data_dir.absolute()  # as what verification says has them
    root, trouble = folder / dataset, ""

    def told(text: str) -> str:
        """Return a text without the paths of this machine, which say nothing to a visitor."""
        for path, name in ((f"{root}/", ""), (str(root), dataset), (str(data_dir), "the folder of data")):
            text = text.replace(path, name)
        return text

    def without_paths(said: Finding) -> Finding:
        reasons, notes = ([told(line) for line in lines] for lines in (said.reasons, said.notes))
        return replace(said, label=told(said.label), reasons=reasons, notes=notes)

    given = GivenTable.if_readable(folder / f"{dataset}.json")
    columns, protocol = (PAPER, "") if given is None else (given.shown(), given.protocol)
    try:
        opened = checked_board(dataset, Place(root, data_dir, protocol_of(protocol)), compared=further(columns))
        board, report = _with_kept(opened.board, columns, data_dir), opened.report
    except UserError as error:  # verification names what is there, and no table follows from it
        records, report = checked_records(dataset, root, data_dir, further(columns))
        board, trouble = Board(dataset, protocol, "height", (), records=records), told(str(error))
    runs = [without_paths(run) for run in report.runs]
    others = {record.id for record in read_records(root)} - {run.id for run in runs}
    runs += [Finding(name, name, "rejected", [NOT_OF_IT]) for name in sorted(others)]
    rows, tables = (list(map(without_paths, findings)) for findings in (report.rows, report.tables))
    return Table(dataset, submission, folder, root, board, Report(root, runs, rows, tables), trouble)


def _with_kept(board: Board, columns: Sequence[Column], data_dir: Path) -> Board:
    """Return a board with these columns, of the values that are kept with its runs; nothing is computed or written."""
    if tuple(columns) == PAPER:
        return board
    if not values_are_kept(board, columns):
        kept = f"columns are left out as not all runs keep values of {', '.join(sorted(further(columns)))}"
        return replace(board, remark="; ".join(filter(None, [board.remark, kept])))
    return with_columns(board, columns, data_dir)
