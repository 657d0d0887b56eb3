"""The content of a site: the tables of a folder as verification leaves them, and the findings on their records."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from hierbench.config.options import RunSelection
from hierbench.config.recipe import dataset_title
from hierbench.config.recipe_source import is_dataset_file
from hierbench.leaderboard.board import Board
from hierbench.leaderboard.board_answers import BoardAnswers
from hierbench.leaderboard.columns import PAPER_COLUMNS, Column, further_names
from hierbench.leaderboard.extra_columns import with_columns
from hierbench.leaderboard.statistics import Row
from hierbench.runs.findings import ConsistencyCheck, FolderReport, shown_state
from hierbench.runs.record import Record
from hierbench.runs.record_reader import read_records
from hierbench.runs.state import Note, State, weakest
from hierbench.sharing.verification.checked_board import checked_board, checked_records
from hierbench.sharing.verification.published_tables import GivenTable, parse_protocol, values_are_kept
from hierbench.utils.errors import UserError

NOT_OF_IT = "its spec cannot be read, or is of another dataset"


@dataclass
class SiteTable:
    """One published table.

    Attributes:
        dataset: as the folder names it.
        folder: with `<dataset>.json`.
        records: the folder of its records.
        board: of the records that verification did not reject; without rows if all are rejected.
        report: of verification, without the paths of this machine.
        trouble: why the board has no rows, "" where it has.
        answers: of its runs, until its page is written: those of a large table take 100 MB.
    """

    dataset: str
    folder: Path
    records: Path
    board: Board
    report: FolderReport
    trouble: str = ""
    answers: BoardAnswers | None = None

    @property
    def title(self) -> str:
        """The title of its dataset."""
        return self.dataset if is_dataset_file(self.dataset) else dataset_title(self.dataset)

    @cached_property
    def runs(self) -> dict[str, Record]:
        """The findings on each run, by id."""
        return {run.id: run for run in self.report.runs}

    def counts(self) -> dict[str, int]:
        """Return the number of runs per verdict, without zeros."""
        return {verdict: number for verdict, number in self.report.counts().items() if number}

    def row_verdict(self, row: Row) -> str:
        """Return the weakest verdict of a row's runs, "" for a row without any."""
        states = (shown_state(self.runs[run]) for run in row.runs if run in self.runs)
        return row.state or weakest(filter(None, states)) or ""

    @property
    def rejected(self) -> list[ConsistencyCheck]:
        """The published files and the rows that are rejected."""
        return [finding for finding in (*self.report.tables, *self.report.rows) if finding.rejected]


def find_tables(folder: Path) -> list[str]:
    """Return the datasets of the published tables in a folder."""
    if not folder.is_dir():
        raise UserError(f"no folder {folder}")
    names = sorted(entry.name for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False))
    tables = [name for name in names if (folder / f"{name}.json").is_file()]
    if not tables:
        raise UserError(f"{folder} has no published table (<dataset>.json beside <dataset>/)")
    return tables


def read_table(folder: Path, dataset: str, data_dir: Path) -> SiteTable:
    """Return a published table as verification leaves it; where nothing is left, with the reason and no rows."""
    folder = folder.absolute()
    data_dir = data_dir.absolute()  # like the output of verification
    root = folder / dataset
    trouble = ""
    answers = None

    def without_path(text: str) -> str:
        """Return a text without the paths of this machine, which say nothing to a visitor."""
        for path, name in ((f"{root}/", ""), (str(root), dataset), (str(data_dir), "the folder of data")):
            text = text.replace(path, name)
        return text

    def without_paths(finding: ConsistencyCheck) -> ConsistencyCheck:
        reasons = list(map(without_path, finding.reasons))
        notes = [Note(without_path(note), note.kind) for note in finding.notes]
        return replace(finding, label=without_path(finding.label), reasons=reasons, notes=notes)

    table = GivenTable.if_readable(folder / f"{dataset}.json")
    columns, protocol = (PAPER_COLUMNS, "") if table is None else (table.shown(), table.protocol)
    try:
        opened = checked_board(
            dataset, RunSelection(root, data_dir, parse_protocol(protocol)), compared=further_names(columns)
        )
        board = _with_kept(opened.board, columns, data_dir)
        report = opened.report
        answers = None if any(finding.rejected for finding in report.tables) else opened.answers()
    except UserError as error:  # verification lists the runs, and there is no table
        records, report = checked_records(dataset, root, data_dir, further_names(columns))
        board = Board(dataset, protocol, "height", (), records=records)
        trouble = without_path(str(error))
    runs = [
        replace(
            run,
            findings=tuple(map(without_path, run.findings)),
            notes=tuple(Note(without_path(note), note.kind) for note in run.notes),
        )
        for run in report.runs
    ]
    ids = {run.id for run in runs}
    others = sorted((record for record in read_records(root) if record.id not in ids), key=lambda record: record.id)
    runs += [replace(record, state=State.REJECTED, findings=(NOT_OF_IT,)) for record in others]
    rows, tables = (list(map(without_paths, findings)) for findings in (report.rows, report.tables))
    return SiteTable(dataset, folder, root, board, FolderReport(root, runs, rows, tables), trouble, answers)


def _with_kept(board: Board, columns: Sequence[Column], data_dir: Path) -> Board:
    """Return a board with these columns, of the values that are kept with its runs; nothing is computed or written."""
    if tuple(columns) == PAPER_COLUMNS:
        return board
    if not values_are_kept(board, columns):
        kept = f"columns are left out as not all runs keep values of {', '.join(sorted(further_names(columns)))}"
        return replace(board, remarks=(*board.remarks, kept))
    return with_columns(board, columns, data_dir)
