"""What a site is made of: the tables of a folder as verification leaves them, and what stands beside their records."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from hierbench.config.recipe import title_of
from hierbench.config.sections import PROTOCOLS
from hierbench.config.source import is_dataset_file
from hierbench.experiments.publication.card import FILE, Card, read_card
from hierbench.experiments.publication.changes import Entry, read_changes
from hierbench.experiments.verification.checked import checked_board, checked_runs
from hierbench.experiments.verification.findings import VERDICTS, Finding, Report
from hierbench.experiments.verification.tables import metrics_shown
from hierbench.leaderboard.board import Board
from hierbench.leaderboard.columns import PAPER, Column, further
from hierbench.leaderboard.measured import counted_runs, with_columns
from hierbench.leaderboard.statistics import Row
from hierbench.runs.further_metrics import has_predictions, read_further
from hierbench.runs.store import Store
from hierbench.utils.errors import UserError
from hierbench.utils.files import read_json_object

SUBMISSIONS, BOARDS = "submissions", "boards"
NOT_OF_IT = "its spec cannot be read, or is of another dataset"
MOST_CHANGES = 20  # that pages list of a table


@dataclass
class Table:
    """One published table.

    Attributes:
        dataset: as the folder names it.
        submission: folder of the submission that it is part of, "" for none.
        folder: with `<dataset>.json`.
        store: its records.
        board: what follows from the records that verification did not reject; without rows where nothing does.
        report: what verification says, without the paths of this machine.
        trouble: why the board has no rows, "" where it has.
    """

    dataset: str
    submission: str
    folder: Path
    store: Store
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

    def claimed_counts(self) -> dict[str, int]:
        """Return what the publisher's own verdict file counts, {} without one; it is shown as a claim."""
        try:
            counts = read_json_object(self.folder / f"{self.dataset}-verdict.json")["folders"][0]["counts"]
            return {verdict: int(counts[verdict]) for verdict in VERDICTS if counts.get(verdict)}
        except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError):
            return {}

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
    store, trouble = Store(folder / dataset), ""

    def told(text: str) -> str:
        """Return a text without the paths of this machine, which say nothing to a visitor."""
        for path, name in ((f"{store.root}/", ""), (str(store.root), dataset), (str(data_dir), "the folder of data")):
            text = text.replace(path, name)
        return text

    def without_paths(said: Finding) -> Finding:
        reasons, notes = ([told(line) for line in lines] for lines in (said.reasons, said.notes))
        return replace(said, label=told(said.label), reasons=reasons, notes=notes)

    try:
        protocol = read_json_object(folder / f"{dataset}.json").get("protocol")
    except (OSError, ValueError):
        protocol = None
    columns = _columns_of(store, dataset)
    known = protocol if protocol in PROTOCOLS else None
    try:
        opened = checked_board(dataset, store, data_dir, known, compared=further(columns))
        board, report = _with_kept(opened.board, columns, store, data_dir), opened.report
        store = opened.store
    except UserError as error:  # verification names what is there, and no table follows from it
        board, trouble = Board(dataset, str(protocol), "height", ()), told(str(error))
        _, report = checked_runs(dataset, store, data_dir, further(columns))
    runs = [without_paths(run) for run in report.runs]
    others = {run.folder.name for run in (*Store(store.root).runs(), *store.lost())} - {run.id for run in runs}
    runs += [Finding(name, name, "rejected", [NOT_OF_IT]) for name in sorted(others)]
    rows, tables = (list(map(without_paths, findings)) for findings in (report.rows, report.tables))
    return Table(dataset, submission, folder, store, board, Report(store.root, runs, rows, tables), trouble)


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
