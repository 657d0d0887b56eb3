"""`hierbench publish`: a table and the evidence behind it, written into a folder of publications, or updated there."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hierbench.config.options import RunSelection
from hierbench.config.recipe import dataset_name
from hierbench.leaderboard.board import Board, mentions_other_runs
from hierbench.leaderboard.board_data import SCORED
from hierbench.leaderboard.columns import PAPER_COLUMNS, Column
from hierbench.leaderboard.formats import Format
from hierbench.metrics.metric_table import user_metrics
from hierbench.runs.record_reader import read_records
from hierbench.runs.records import Records
from hierbench.sharing.bundle import published_ids
from hierbench.sharing.compose import Publication, RunGroup, columns_of_published, compose, refuse_rejected
from hierbench.sharing.publication_folder import SUFFIXES, checked_place, existing_names, replaced
from hierbench.sharing.verification.checked_board import checked_board
from hierbench.sharing.verification.published_tables import parse_protocol
from hierbench.utils.errors import UserError
from hierbench.utils.files import refuse_links
from hierbench.utils.text import counted


@dataclass(frozen=True)
class PublishResult:
    """The lines of a publication: notes on runs that were left out, and the outcome."""

    notes: list[str]
    lines: list[str]


def publish(
    dataset: str,
    folder: Path,
    selection: RunSelection,
    columns: Sequence[Column] | None = None,
    *,
    draw: bool = True,
    formats: Sequence[Format] = tuple(SUFFIXES),
) -> PublishResult:
    """Publish a table, or replace a published one by the table of its runs and these.

    Args:
        dataset: its name or the file of a user's dataset.
        folder: of publications.
        selection: a runs folder, or published records; prepared data; and which runs are meant.
        columns: of the table; None takes the paper's, or those of the table to replace.
        draw: whether with pictures, which take most of the time.
        formats: of the table.

    Raises:
        UserError: files of this name without their records are there; verification rejects a run; or a run is not
            finished. Nothing is written then.
    """
    folder = checked_place(folder)
    name = dataset_name(dataset)
    runs = selection.runs
    data_dir = selection.data_dir
    if runs.resolve().is_relative_to(folder):  # it would be replaced, or published as a table
        raise UserError(f"{folder} is the runs folder or holds it: publish into another folder")
    published_columns = columns_of_published(folder, name) if _is_published(folder, name) else PAPER_COLUMNS
    chosen = published_columns if columns is None else columns
    user_columns = [column.name for column in chosen if column.name in user_metrics]
    if user_columns:
        raise UserError(
            f"the metric {user_columns[0]} is that of a file, which verify would not run: publish without it"
        )
    opened = checked_board(dataset, selection, chosen)
    _refuse_damaged(opened.board)
    board = opened.board
    part = RunGroup(opened.board.records, published_ids(opened.board))
    notes = [
        *refuse_rejected(board, opened.report),
        *board.records.notes,
        *filter(mentions_other_runs, board.remarks),
    ]
    with replaced(folder, name) as staging:
        updates = _is_published(folder, name)
        earlier = read_records(folder / name) if updates else Records(folder / name)
        _refuse_other_settings(earlier, board, folder / name)
        kept = _kept_ids(earlier, part)
        parts = [RunGroup(earlier, kept), part] if kept else [part]
        protocol = parse_protocol(board.protocol)
        made = compose(staging, dataset, parts, data_dir, protocol, chosen, draw=draw, formats=formats)
        gone = sorted({*existing_names(folder, name)} - {*existing_names(staging, name)})
        lines = [_describe_update(earlier, made.board, gone)] if updates else []
        dropped = [column.name for column in published_columns if column not in chosen]
        notes += [f"the table no longer has the columns {', '.join(dropped)}"] if dropped else []
    return PublishResult([*notes, *made.notes], [*lines, describe_publication(folder, made)])


def _refuse_damaged(board: Board) -> None:
    """Raise a UserError for a requested run with a damaged spec: its row would be shorter."""
    requests = [
        request
        for request in board.records.requests
        if (request.kind, request.dataset) == ("comparison", board.dataset)
    ]
    requested_ids = {run_id for request in requests for run_id in request.ids}
    for record in board.records:
        if record.spec is None and record.id in requested_ids:
            why = f"run {record.id[:12]} is damaged ({record.findings[0]})"
            raise UserError(f"nothing is published: {why}; the command that trains it makes it again")


def _refuse_other_settings(earlier: Records, board: Board, folder: Path) -> None:
    """Raise a UserError unless a publication is of the data, the tree and the protocol of a board."""
    data = board.records[board.rows[0].runs[0]].dataset
    for record in earlier:
        if record.spec is not None and record.spec.protocol != board.protocol != SCORED:
            raise UserError(f"{folder} is of protocol {record.spec.protocol}: move it away to publish {board.protocol}")
        if record.dataset is not None and record.dataset != data:
            raise UserError(f"{folder} is of other data, or of another tree or distance: move it away to publish this")


def _describe_update(earlier: Records, board: Board, gone: Sequence[str]) -> str:
    """Return the line that says which runs an update adds to a table and removes from it, by row, and which files."""
    published = {record.id for record in board.records}
    parts = []
    for change, changed in (
        ("added", [record for record in board.records if record.id not in earlier]),
        ("removed", [record for record in earlier if record.id not in published]),
    ):
        rows = Counter(record.label.rpartition(" seed ")[0] for record in changed)
        parts.append(f"{change} {', '.join(f'{number} of {row}' for row, number in rows.items())}" if rows else "")
    changes = [*filter(None, parts)] or ["no run added or removed"]
    return "; ".join([*changes, *(f"removed {name}, which cannot be made of the new table" for name in gone)])


def describe_publication(folder: Path, made: Publication) -> str:
    """Return the line with the number of runs of a publication."""
    runs = counted(len(made.report.runs), "run")
    counts = ", ".join(f"{num} {verdict}" for verdict, num in made.report.counts().items() if num)
    return f"wrote {folder / made.board.dataset}.md, its JSON and the records of its runs; {runs}: {counts}"


def _is_published(folder: Path, name: str) -> bool:
    """Return whether a publication is updated; a UserError if files of its name are there without its records."""
    records = refuse_links(folder, name)
    names = existing_names(folder, name)
    if names and not records.is_dir():
        raise UserError(f"{folder} has {', '.join(names)} without the records of {name}: move these away")
    return records.is_dir()


def _kept_ids(earlier: Records, new: RunGroup) -> list[str]:
    """Return the ids of earlier records that stay: all but scored predictions that were replaced under their name."""
    named = {record.scored.name for run_id in new.ids if (record := new.records[run_id]).scored is not None}
    return [record.id for record in earlier if record.scored is None or record.scored.name not in named]
