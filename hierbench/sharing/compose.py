"""A publication in a new folder: records, tables, sources of methods, pictures and the verdict of verification."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from hierbench.config.options import RunSelection
from hierbench.config.sections import Protocol
from hierbench.leaderboard.answers_table import answers_tables
from hierbench.leaderboard.board import Board
from hierbench.leaderboard.board_answers import BoardAnswers
from hierbench.leaderboard.board_data import BoardData
from hierbench.leaderboard.columns import PAPER_COLUMNS, Column, further_names
from hierbench.leaderboard.formats import Format, render
from hierbench.leaderboard.open_board import notes_on
from hierbench.leaderboard.pictures import style
from hierbench.leaderboard.pictures.answers_plot import draw_answers
from hierbench.leaderboard.pictures.figure_data import draw as draw_kind
from hierbench.leaderboard.statistics import Row
from hierbench.runs.findings import ConsistencyCheck, FolderReport
from hierbench.runs.record_reader import read_records
from hierbench.runs.records import Records
from hierbench.runs.run_archive import pack_folder
from hierbench.sharing.bundle import Bundle, published_ids
from hierbench.sharing.publication_folder import ANSWERS, ANSWERS_PICTURE, PUBLISHED_PICTURES, SUFFIXES, VERDICT
from hierbench.sharing.sources import write_sources
from hierbench.sharing.table_page import answers_page, table_page
from hierbench.sharing.verification.checked_board import checked_board
from hierbench.sharing.verification.published_tables import GivenTable
from hierbench.sharing.verification.verification_table import verification_table
from hierbench.utils.errors import UserError
from hierbench.utils.files import write_text
from hierbench.utils.text import one_line

MAX_FINDINGS = 3  # findings that an error names
MAX_REASON_LENGTH = 300  # characters of a record's text


@dataclass(frozen=True)
class RunGroup:
    """Runs of one folder that a publication is made of."""

    records: Records
    ids: Sequence[str]


@dataclass
class Publication:
    """A publication that was written.

    Attributes:
        board: the table.
        report: of the verification of the folder that was written.
        notes: a line on each run that was left out.
    """

    board: Board
    report: FolderReport
    notes: list[str] = field(default_factory=list)


def compose(
    folder: Path,
    dataset: str,
    parts: Sequence[RunGroup],
    data_dir: Path,
    protocol: Protocol | None = None,
    columns: Sequence[Column] = PAPER_COLUMNS,
    *,
    draw: bool = True,
    formats: Sequence[Format] = tuple(SUFFIXES),
) -> Publication:
    """Write the publication of a dataset into a folder without one; its records are one archive.

    Args:
        folder: of publications.
        dataset: its name or the file of a user's dataset.
        parts: the runs; those of later parts are newer.
        data_dir: prepared data.
        protocol: of the table.
        columns: of the table; values of further ones are kept with the runs.
        draw: whether with pictures.
        formats: of the table.

    Raises:
        UserError: verification rejects the new publication, or a record cannot be published.
    """
    name = parts[0].records[parts[0].ids[0]].content["dataset"]["name"]
    bundle = Bundle(folder / name, data_dir)
    for part in parts:
        bundle.add(part.records, part.ids, further_names(columns))
    bundle.keep(published_ids(Board.of(dataset, read_records(bundle.folder), protocol=protocol)))
    opened = checked_board(dataset, RunSelection(bundle.folder, data_dir, protocol), columns)
    board = opened.board
    report = opened.report
    table = opened.board.table
    refuse_rejected(board, report)
    report.folder = Path(name)
    notes = write_sources(board.records, [part.records for part in parts])
    if draw:
        notes += _draw_pictures({kind: partial(draw_kind, kind, board) for kind in PUBLISHED_PICTURES}, board, folder)
    notes += _write_answers(opened.answers(), folder, draw=draw)
    for kind in formats:  # after the pictures, to which the page leads
        text = table_page(board, folder) if kind == "markdown" else render(table, kind)
        write_text(folder / f"{name}{SUFFIXES[kind]}", text)
    report.tables = [ConsistencyCheck(name)]  # it was rendered from these records
    write_text(folder / f"{name}{VERDICT}", render(verification_table([report]), "json"))
    pack_folder(bundle.folder)
    return Publication(board, report, notes)


def _write_answers(answers: BoardAnswers | None, folder: Path, *, draw: bool) -> list[str]:
    """Write the table of the answers that are kept with the runs of a publication, its page and pictures.

    Returns:
        a line for each row that is left out.
    """
    if answers is None:
        return []
    name = answers.board.dataset
    notes = _draw_pictures({ANSWERS_PICTURE: partial(draw_answers, answers)}, answers.board, folder) if draw else []
    write_text(folder / f"{name}{ANSWERS}.json", render(answers_tables(answers)[0], "json"))
    write_text(folder / f"{name}{ANSWERS}.md", answers_page(answers, folder))
    return [*notes, *(f"answers: {note}" for note in answers.notes)]


def _draw_pictures(makers: Mapping[str, Callable[[], style.Drawing]], board: BoardData, folder: Path) -> list[str]:
    """Write `<dataset>-<kind>.svg` for each kind that can be drawn; return a line for each other."""
    notes = list[str]()
    for kind, draw in makers.items():
        try:
            style.write_figure(draw().figure, folder / f"{board.dataset}-{kind}.svg")
        except UserError as error:
            notes.append(f"no {kind} picture: {one_line(str(error), MAX_REASON_LENGTH)}")
    return notes


def columns_of_published(folder: Path, dataset: str) -> tuple[Column, ...]:
    """Return the columns of a published table, the paper's where its file cannot be read."""
    table = GivenTable.if_readable(folder / f"{dataset}.json")
    return PAPER_COLUMNS if table is None else table.shown()


def refuse_rejected(board: Board, report: FolderReport) -> list[str]:
    """Raise a UserError that names the runs and rows of a table that are rejected or not finished.

    Returns:
        a line for everything else that a reader of the table must know, such as rejected runs.
    """
    run_ids = set(board.records.with_bases(run_id for row in board.rows for run_id in row.runs))
    _refuse(
        "run",
        [(f"{run.id[:12]} ({run.label})", run.findings) for run in report.runs if run.rejected and run.id in run_ids],
    )
    _refuse(
        "row", [(row.label, row.reasons) for row in report.rows if row.rejected and not run_ids.isdisjoint(row.runs)]
    )
    unfinished = [row for row in board.rows if row.n < row.planned]
    if unfinished:
        raise _unfinished_error(unfinished[0], board.records)
    return notes_on(board.records, report.rows, report.tables)


def _unfinished_error(row: Row, records: Records) -> UserError:
    """Return the error for a row with unfinished runs; without them and its later seeds, it is one without gaps."""
    first = next((place for place, run_id in enumerate(row.runs) if not records[run_id].done), 0)
    odd = [f"{records.root / run_id[:12]}*" for run_id in row.runs[first:]]
    more = f" and {len(odd) - MAX_FINDINGS} more" if len(odd) > MAX_FINDINGS else ""
    way = f"run it again, or remove {', '.join(odd[:MAX_FINDINGS])}{more}"
    return UserError(f"not all runs of {row.title} are finished; a published table is complete: {way}")


def _refuse(subject: str, rejected: Sequence[tuple[str, Sequence[str]]]) -> None:
    """Raise a UserError that names the first few and why, if there is one."""
    if rejected:
        lines = []
        for name, reasons in rejected[:MAX_FINDINGS]:
            reason = one_line(", ".join(reasons), MAX_REASON_LENGTH)
            lines.append(f"{subject} {one_line(name, MAX_REASON_LENGTH)} is rejected: {reason}")
        more = [f"{len(rejected) - MAX_FINDINGS} more {subject}s are rejected"] if len(rejected) > MAX_FINDINGS else []
        raise UserError(f"nothing is published: {'; '.join([*lines, *more])}")
