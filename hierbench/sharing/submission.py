"""`hierbench submit`: publications of some methods, restricted to their rows, with a card that says whose they are."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from hierbench.config.options import Place
from hierbench.config.recipe import dataset_name
from hierbench.leaderboard.board import Board
from hierbench.leaderboard.opening import folder_of
from hierbench.sharing.bundle import ids_of
from hierbench.sharing.card import FILE, Card, Statement, as_toml, compute_of
from hierbench.sharing.changes import first_changes, write_changes
from hierbench.sharing.compose import Part, Publication, compose, refuse_rejected
from hierbench.sharing.place import checked_place, replaced
from hierbench.sharing.publish import Said
from hierbench.sharing.verification.checked import checked_board
from hierbench.sharing.verification.tables import protocol_of
from hierbench.utils.errors import UserError, unknown_name
from hierbench.utils.files import write_text


def submit(
    runs: Path,
    folder: Path,
    datasets: Sequence[str],
    statement: Statement,
    methods: Sequence[str] = (),
    data_dir: Path = Path("data"),
    request: str | None = None,
) -> Said:
    """Write a submission of the rows of some methods, of all without any, of the last comparison or a named one.

    What re-ranks other runs is submitted with them, as nothing could be recomputed without.

    Raises:
        UserError: the folder is there already, verification rejects a run, or a method or dataset has none.
    """
    folder = checked_place(folder)
    if folder.exists() and any(folder.iterdir()):
        raise UserError(f"{folder} exists; move it away, or submit to another folder")
    parts, notes = {}, list[str]()
    for dataset in dict.fromkeys(datasets):
        parts[dataset], of_dataset = _part(runs, dataset, methods, data_dir, request)
        notes += of_dataset
    made = list[Publication]()
    with replaced(folder, None) as staging:
        for dataset, (board, part) in parts.items():
            one = compose(staging, dataset, [part], data_dir, protocol_of(board.protocol))
            write_changes(staging, one.board.dataset, first_changes(one.board))
            made.append(one)
        card = _card(statement, made)
        write_text(staging / FILE, as_toml(card))
    hours = card.compute.training_seconds / 3600.0
    rows = ", ".join(f"{one.board.dataset}: {len(one.board.rows)} rows" for one in made)
    said = f"wrote {folder}: {rows}; {card.compute.runs} runs, {hours:.2f} hours of training"
    return Said([*notes, *(note for one in made for note in one.notes)], [said])


def _part(
    runs: Path, dataset: str, methods: Sequence[str], data_dir: Path, request: str | None
) -> tuple[tuple[Board, Part], list[str]]:
    """Return the rows of a dataset that are submitted, after verification, and their runs."""
    name = dataset_name(dataset)
    opened = checked_board(dataset, Place(folder_of(runs, name), data_dir, request=request))
    board, report = opened.board, opened.report
    known = {row.method for row in board.rows}
    for method in methods:
        if method not in known:
            raise unknown_name(f"method in the table of {name}", method, known)
    board = replace(board, rows=tuple(row for row in board.rows if not methods or row.method in methods))
    notes = refuse_rejected(board, report)
    return (board, Part(board.records, ids_of(board))), notes


def _card(statement: Statement, made: Sequence[Publication]) -> Card:
    return Card(
        **{name: getattr(statement, name) for name in Statement.model_fields},
        datasets=tuple(one.board.dataset for one in made),
        methods=tuple(dict.fromkeys(row.method for one in made for row in one.board.rows)),
        compute=compute_of([run for one in made for run in one.board.records]),
    )
