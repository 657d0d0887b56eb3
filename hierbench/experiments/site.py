"""The site of a folder of published tables: finds them, verifies their records, and hands both to the pages."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from hierbench.config.sections import PROTOCOLS
from hierbench.experiments.reproduction import command_of
from hierbench.experiments.verification.checked import checked_board, checked_runs
from hierbench.experiments.verification.findings import CAVEAT, Finding
from hierbench.experiments.verification.tables import metrics_shown
from hierbench.leaderboard.board import Board
from hierbench.leaderboard.columns import PAPER, Column, further
from hierbench.leaderboard.measured import counted_runs, with_columns
from hierbench.reports.site.build import Site, write_site
from hierbench.reports.site.content import Said, Table
from hierbench.reports.site.place import check_apart
from hierbench.runs.further_metrics import has_predictions, read_further
from hierbench.runs.store import Store
from hierbench.utils.console import say
from hierbench.utils.errors import UserError
from hierbench.utils.files import read_json_object
from hierbench.utils.text import one_line

SUBMISSIONS, BOARDS = "submissions", "boards"
NOT_OF_IT = "its spec cannot be read, or is of another dataset"


def build_site(folder: Path, target: Path, title: str, base_url: str, data_dir: Path) -> tuple[int, Sequence[Table]]:
    """Build the site of a folder in the place of `target`; return its number of files and its tables.

    Args:
        folder: of published tables, or a repository of results: `submissions/<name>/` and `boards/` are such folders.
        target: free, or a site that this function made.
        title: of the site.
        base_url: where it will be, "" if that is not known.
        data_dir: prepared data, which gives verification the targets where it is that of the runs.

    Raises:
        UserError: there are no tables, or `target` is not free.
    """
    found = find_tables(folder)
    check_apart(folder, target)
    tables = []
    for submission, place, dataset in found:
        say(one_line(f"verifying {place / dataset}"))
        tables.append(read_table(place, dataset, submission, data_dir))
    site = Site(title, f"{base_url.rstrip('/')}/" if base_url else "", tables, command_of, CAVEAT)
    return write_site(site, target), tables


def find_tables(folder: Path) -> list[tuple[str, Path, str]]:
    """Return (submission, folder, dataset) of each published table; the submission is "" for one that is of none."""
    if not folder.is_dir():
        raise UserError(f"no folder {folder}")
    places = [("", folder)]
    boards, submissions = folder / BOARDS, folder / SUBMISSIONS
    if boards.is_dir() and not boards.is_symlink():
        places.append(("", boards))
    if submissions.is_dir() and not submissions.is_symlink():
        entries = sorted(os.scandir(submissions), key=lambda entry: entry.name)
        places += [(entry.name, submissions / entry.name) for entry in entries if entry.is_dir(follow_symlinks=False)]
    found = [(name, place, dataset) for name, place in places for dataset in _datasets_in(place)]
    if not found:
        raise UserError(
            f"{folder} has no published table (<dataset>.json beside <dataset>/), and no submission has one"
        )
    return found


def _datasets_in(folder: Path) -> list[str]:
    names = sorted(entry.name for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False))
    return [name for name in names if (folder / f"{name}.json").is_file()]


def read_table(folder: Path, dataset: str, submission: str, data_dir: Path) -> Table:
    """Return a published table as verification leaves it; where nothing is left, with the reason and no rows."""
    folder, data_dir = folder.absolute(), data_dir.absolute()  # as what verification says has them
    store, trouble = Store(folder / dataset), ""
    folders = {f"{store.root}/": "", str(store.root): dataset, str(data_dir): "the folder of data"}
    try:
        protocol = read_json_object(folder / f"{dataset}.json").get("protocol")
    except (OSError, ValueError):
        protocol = None
    known = protocol if protocol in PROTOCOLS else None
    columns = _columns_of(store, dataset)
    try:
        opened = checked_board(dataset, store, data_dir, known, compared=further(columns))
        board, report = _with_kept(opened.board, columns, store, data_dir), opened.report
    except UserError as error:  # verification names what is there, and no table follows from it
        board, trouble = Board(dataset, str(protocol), "height", ()), _told(str(error), folders)
        _, report = checked_runs(dataset, store, data_dir, further(columns))
    runs = {run.id: _said(run, folders) for run in report.runs}
    for run in (*store.runs(), *store.lost()):
        runs.setdefault(run.folder.name, Said(run.folder.name, "rejected", (NOT_OF_IT,)))
    rows, tables = ([_said(one, folders) for one in findings] for findings in (report.rows, report.tables))
    return Table(dataset, submission, folder, store, board, runs, rows, tables, trouble)


def _columns_of(store: Store, dataset: str) -> tuple[Column, ...]:
    """Return the columns of the published table."""
    if not metrics_shown(store.root, dataset):
        return PAPER
    from hierbench.experiments.publication.compose import columns_of_published  # PyTorch, for what is beyond the paper

    return columns_of_published(store.root.parent, dataset)


def _with_kept(board: Board, columns: Sequence[Column], store: Store, data_dir: Path) -> Board:
    """Return a board with these columns, of the values that are kept with its runs; nothing is computed or written."""
    if tuple(columns) == PAPER:
        return board
    names = set(further(columns))
    runs = [run for row in board.rows for run in counted_runs(row, store)]
    if any(has_predictions(run) and not read_further(run, store).keys() >= names for run in runs):
        kept = f"columns are left out as not all runs keep values of {', '.join(sorted(names))}"
        return replace(board, remark="; ".join(filter(None, [board.remark, kept])))
    return with_columns(board, columns, store, data_dir)


def _said(finding: Finding, folders: Mapping[str, str]) -> Said:
    """Return a finding without the paths of this machine."""
    reasons, notes = (tuple(_told(line, folders) for line in lines) for lines in (finding.reasons, finding.notes))
    return Said(_told(finding.label, folders), finding.verdict, reasons, notes, tuple(finding.runs))


def _told(text: str, folders: Mapping[str, str]) -> str:
    """Return a text without the paths of this machine, which say nothing to a visitor."""
    for path, name in folders.items():
        text = text.replace(path, name)
    return text
