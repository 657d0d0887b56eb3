"""`hierbench submit`: publications of some methods, restricted to their rows, with a card that says whose they are."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hierbench.config.recipe import dataset_name
from hierbench.experiments.publication.card import FILE, Card, Statement, as_toml, compute_of
from hierbench.experiments.publication.changes import first_changes, protocol_of, write_changes
from hierbench.experiments.publication.compose import Part, Publication, compose
from hierbench.experiments.publication.place import checked_place, is_published, replaced
from hierbench.experiments.publication.publish import Said
from hierbench.experiments.publication.records import ids_of
from hierbench.experiments.publication.refusal import refuse_rejected
from hierbench.experiments.verification.checked import checked_board
from hierbench.leaderboard.board import Board
from hierbench.runs.store import Store
from hierbench.utils.errors import UserError, unknown_name
from hierbench.utils.files import write_text


@dataclass(frozen=True)
class Request:
    """The options of `hierbench submit`; no methods stand for all of the table."""

    runs: Path
    folder: Path
    datasets: Sequence[str]
    statement: Statement
    methods: Sequence[str] = ()
    data_dir: Path = Path("data")


def submit(request: Request) -> Said:
    """Write a submission.

    What re-ranks other runs is submitted with them, as nothing could be recomputed without.

    Raises:
        UserError: the folder is there already, verification rejects a run, or a method or dataset has none.
    """
    folder = checked_place(request.folder)
    if folder.exists() and any(folder.iterdir()):
        raise UserError(f"{folder} exists; move it away, or submit to another folder")
    parts, notes = {}, list[str]()
    for dataset in dict.fromkeys(request.datasets):
        parts[dataset], of_dataset = _part(request, dataset)
        notes += of_dataset
    made = list[Publication]()
    with replaced(folder, None) as staging:
        for dataset, (board, part) in parts.items():
            one = compose(staging, dataset, [part], request.data_dir, protocol_of(board))
            write_changes(staging, one.board.dataset, first_changes(one.board), "", [])
            made.append(one)
        card = _card(request.statement, staging, made)
        write_text(staging / FILE, as_toml(card))
    hours = card.compute.training_seconds / 3600.0
    rows = ", ".join(f"{one.board.dataset}: {len(one.board.rows)} rows" for one in made)
    said = f"wrote {folder}: {rows}; {card.compute.runs} runs, {hours:.2f} hours of training"
    return Said([*notes, *(note for one in made for note in one.notes)], [said])


def _part(request: Request, dataset: str) -> tuple[tuple[Board, Part], list[str]]:
    """Return the rows of a dataset that are submitted, after verification, and their runs."""
    name = dataset_name(dataset)
    published = is_published(request.runs, name) and (request.runs / name).is_dir()
    store = Store(request.runs / name if published else request.runs)
    opened = checked_board(dataset, store, request.data_dir)
    board, report = opened.board, opened.report
    known = {row.method for row in board.rows}
    for method in request.methods:
        if method not in known:
            raise unknown_name(f"method in the table of {name}", method, known)
    board = replace(
        board, rows=tuple(row for row in board.rows if not request.methods or row.method in request.methods)
    )
    notes = refuse_rejected(board, report, store)
    return (board, Part(store, ids_of(board, store))), notes


def _card(statement: Statement, folder: Path, made: Sequence[Publication]) -> Card:
    return Card(
        **{name: getattr(statement, name) for name in Statement.model_fields},
        datasets=tuple(one.board.dataset for one in made),
        methods=tuple(dict.fromkeys(row.method for one in made for row in one.board.rows)),
        compute=compute_of([run for one in made for run in Store(folder / one.board.dataset).runs()]),
    )
