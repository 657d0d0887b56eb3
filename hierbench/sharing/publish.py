"""`hierbench publish`: a table and the evidence behind it, written into a folder of publications, or updated there."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hierbench.config.options import Place
from hierbench.config.recipe import dataset_name
from hierbench.leaderboard.board import Board, NoRunsError, left_out
from hierbench.leaderboard.boards import differences_of
from hierbench.leaderboard.columns import PAPER, Column
from hierbench.sharing.bundle import ids_of
from hierbench.sharing.changes import (
    changes_between,
    first_changes,
    read_changes,
    write_changes,
)
from hierbench.sharing.compose import Part, Publication, columns_of_published, compose, read_board, refuse_rejected
from hierbench.sharing.place import checked_place, names_there, replaced
from hierbench.sharing.verification.checked import checked_board
from hierbench.sharing.verification.tables import protocol_of
from hierbench.utils.errors import UserError
from hierbench.utils.files import refuse_links
from hierbench.utils.text import one_line

LONGEST = 500  # characters of --because


@dataclass(frozen=True)
class Said:
    """What there is to say: notes on what was found and left out, and what was done."""

    notes: list[str]
    lines: list[str]


def publish(
    dataset: str,
    folder: Path,
    place: Place,
    columns: Sequence[Column] | None = None,
    *,
    update: bool = False,
    because: str = "",
) -> Said:
    """Publish a table, or update a published one.

    Args:
        dataset: its name or the file of a user's dataset.
        folder: of publications.
        place: a runs folder, or published records; prepared data; and which runs are meant.
        columns: of the table; None takes the paper's, or those of the table to update.
        update: whether a table is there already.
        because: why an update makes something worse.

    Raises:
        UserError: there is a publication and no `update`; verification rejects a run; a run is not finished; or an
            update makes something worse and `because` does not say why. Nothing is written then.
    """
    if because and not update:
        raise UserError("--because is for --update")
    folder, name = checked_place(folder), dataset_name(dataset)
    runs, data_dir = place.runs, place.data_dir
    if runs.resolve().is_relative_to(folder):  # it would be replaced, or published as a table
        raise UserError(f"{folder} is the runs folder or holds it: publish into another folder")
    known = columns_of_published(folder, name) if _check_there(folder, name, update) else PAPER
    chosen = known if columns is None else columns
    opened = checked_board(dataset, place, chosen)
    board, part = opened.board, Part(opened.board.records, ids_of(opened.board))
    notes = [*refuse_rejected(board, opened.report), *filter(left_out, board.remark.split("; "))]
    with replaced(folder, name) as staging:
        updates = _check_there(folder, name, update)
        parts, old = [part], None
        if updates:
            old = _earlier(folder, name, data_dir, board, runs)
            if kept := _kept(old, part):
                parts = [Part(old.records, kept), part]
        made = compose(staging, dataset, parts, data_dir, protocol_of(board.protocol), chosen)
        if old is None:
            found = first_changes(made.board)
        else:
            found = changes_between(folder / name, old, staging / name, made.board)
            if found.worse and not because:
                (row, why), *others = found.worse
                more = f" (and {len(others)} more)" if others else ""
                raise UserError(f"{row} gets worse: {why}{more}; say why with --because TEXT, or leave it out")
        if because and not found.worse:
            notes.append("--because explains nothing: no row disappears or gets worse")
        earlier = read_changes(folder, name) if updates else []
        write_changes(staging, name, found, one_line(because, LONGEST), earlier)
        notes += _not_made(folder, name, known, chosen) if updates else []
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
    there = names_there(folder, name)
    if there and not update:
        way = "change this publication with --update, or move all of these away to publish again"
        raise UserError(f"{folder} has {', '.join(there)}: {way}")
    return records.is_dir()


def _earlier(folder: Path, name: str, data_dir: Path, board: Board, runs: Path) -> Board:
    """Return the table to update; a UserError if the new runs can be in no table with its own."""
    try:
        old = read_board(folder, name, data_dir)
    except NoRunsError:
        raise UserError(
            f"{folder / name} has no records that could be updated; move it away to publish again"
        ) from None
    differences_of((old, folder / name), (board, runs))
    return old


def _kept(old: Board, new: Part) -> Sequence[str]:
    """Return the ids of earlier records that stay: all but scored predictions whose name stands for others now."""
    named = {one.scored.name for one in map(new.records.__getitem__, new.ids) if one.scored is not None}
    scored = {run_id: old.records[run_id].scored for run_id in ids_of(old)}
    return [run_id for run_id, known in scored.items() if known is None or known.name not in named]
