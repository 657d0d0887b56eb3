"""`hierbench publish`: a table and the evidence behind it, written into a folder of publications, or updated there."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hierbench.config.recipe import dataset_name
from hierbench.config.scored import is_scored
from hierbench.config.sections import Protocol
from hierbench.experiments.publication.changes import (
    changes_between,
    first_changes,
    protocol_of,
    read_changes,
    write_changes,
)
from hierbench.experiments.publication.compose import Part, Publication, columns_of_published, compose, read_board
from hierbench.experiments.publication.place import checked_place, is_published, names_there, replaced
from hierbench.experiments.publication.records import ids_of
from hierbench.experiments.publication.refusal import refuse_rejected
from hierbench.experiments.verification.checked import checked_board
from hierbench.leaderboard.board import Board, NoRunsError, damaged_runs, left_out
from hierbench.leaderboard.boards import differences_of
from hierbench.leaderboard.columns import PAPER, Column
from hierbench.runs.store import Store
from hierbench.utils.errors import UserError
from hierbench.utils.files import refuse_links
from hierbench.utils.text import one_line

LONGEST = 500  # characters of --because


@dataclass(frozen=True)
class Request:
    """The options of `hierbench publish`; None for columns takes the paper's, or those of the table to update."""

    dataset: str
    folder: Path
    runs: Path = Path("runs")
    data_dir: Path = Path("data")
    protocol: Protocol | None = None
    columns: tuple[Column, ...] | None = None
    update: bool = False
    because: str = ""


@dataclass(frozen=True)
class Said:
    """What there is to say: notes on what was found and left out, and what was done."""

    notes: list[str]
    lines: list[str]


def publish(request: Request) -> Said:
    """Publish a table, or update a published one.

    Raises:
        UserError: there is a publication and no `update`; verification rejects a run; a run is not finished; or an
            update makes something worse and `because` does not say why. Nothing is written then.
    """
    if request.because and not request.update:
        raise UserError("--because is for --update")
    folder, name = checked_place(request.folder), dataset_name(request.dataset)
    if request.runs.resolve().is_relative_to(folder):  # it would be replaced, or published as a table
        raise UserError(f"{folder} is the runs folder or holds it: publish into another folder")
    known = columns_of_published(folder, name) if _check_there(folder, name, request.update) else PAPER
    columns = request.columns or known
    board, part, notes = _runs(request, columns)
    with replaced(folder, name) as staging:
        updates = _check_there(folder, name, request.update)
        parts, old = [part], None
        if updates:
            old = _earlier(request, folder, name, board)
            if kept := _kept(Store(folder / name), old, part):
                parts = [Part(Store(folder / name), kept), part]
        made = compose(staging, request.dataset, parts, request.data_dir, protocol_of(board), columns)
        if old is None:
            found = first_changes(made.board)
        else:
            found = changes_between(folder / name, old, staging / name, made.board)
            if found.worse and not request.because:
                (row, why), *others = found.worse
                more = f" (and {len(others)} more)" if others else ""
                raise UserError(f"{row} gets worse: {why}{more}; say why with --because TEXT, or leave it out")
        if request.because and not found.worse:
            notes.append("--because explains nothing: no row disappears or gets worse")
        because = one_line(request.because, LONGEST)
        write_changes(staging, name, found, because, read_changes(folder, name) if updates else [])
        notes += _not_made(folder, name, known, columns) if updates else []
    return Said([*notes, *made.notes], [*(found.lines() if updates else []), written(folder, made)])


def _not_made(folder: Path, name: str, known: Sequence[Column], columns: Sequence[Column]) -> list[str]:
    """Return a line on columns that an update drops, and one on files beside the table that it does not make anew."""
    dropped = [column.name for column in known if column not in columns]
    lines = [f"the table no longer has the columns {', '.join(dropped)}"] if dropped else []
    others = re.compile(rf"{re.escape(name)}-(levels|metrics|differences|mistakes)\.[a-z]+")
    stale = sorted(path.name for path in folder.iterdir() if others.fullmatch(path.name))
    return [*lines, f"not made anew, and perhaps of the earlier table: {', '.join(stale)}"] if stale else lines


def written(folder: Path, made: Publication) -> str:
    """Return the line that says what a publication holds."""
    runs = f"{len(made.report.runs)} run{'s' if len(made.report.runs) != 1 else ''}"
    counts = ", ".join(f"{num} {verdict}" for verdict, num in made.report.counts().items() if num)
    return f"wrote {folder / made.board.dataset}.md, its JSON and the records of its runs; {runs}: {counts}"


def _check_there(folder: Path, name: str, update: bool) -> bool:
    """Return whether a publication is updated; a UserError if there is one and it may not be."""
    records = refuse_links(folder, name)
    if not is_published(folder, name):
        return False
    if not update:
        there = ", ".join(names_there(folder, name))
        way = "change this publication with --update, or move all of these away to publish again"
        raise UserError(f"{folder} has {there}: {way}")
    return records.is_dir()


def _runs(request: Request, columns: Sequence[Column]) -> tuple[Board, Part, list[str]]:
    """Return the table to publish, after verification, and its runs, with the values of further columns computed."""
    store = Store(request.runs)
    try:
        opened = checked_board(request.dataset, store, request.data_dir, request.protocol, columns)
    except UserError as error:
        damaged = damaged_runs(request.dataset, store)  # perhaps why
        raise UserError("; ".join([str(error), *damaged[:1]])) from None
    board = opened.board
    notes = [
        *refuse_rejected(board, opened.report, store),
        *(part for part in board.remark.split("; ") if left_out(part)),
    ]
    return board, Part(store, ids_of(board, store)), notes


def _earlier(request: Request, folder: Path, name: str, board: Board) -> Board:
    """Return the table to update; a UserError if the new runs can be in no table with its own."""
    try:
        old = read_board(folder, name, request.data_dir)
    except NoRunsError:
        raise UserError(
            f"{folder / name} has no records that could be updated; move it away to publish again"
        ) from None
    differences_of((old, Store(folder / name), folder / name), (board, Store(request.runs), request.runs))
    return old


def _kept(old: Store, board: Board, new: Part) -> Sequence[str]:
    """Return the ids of earlier records that stay: all but scored predictions whose name stands for others now."""
    specs = [new.store.run(run_id).spec() for run_id in new.ids]
    named = {spec["name"] for spec in specs if is_scored(spec)}

    def stays(run_id: str) -> bool:
        spec = old.run(run_id).spec()
        return not is_scored(spec) or spec["name"] not in named

    return [run_id for run_id in ids_of(board, old) if stays(run_id)]
