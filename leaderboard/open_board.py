"""The board that a command was asked for, of the user's own runs: they are believed as recorded.

Runs that are damaged or rejected are named on standard error, and count as planned and not as finished.
"""

import os
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from hierbench.config.options import RunSelection
from hierbench.config.recipe import dataset_name
from hierbench.leaderboard.board import Board
from hierbench.leaderboard.columns import PAPER_COLUMNS, Column
from hierbench.leaderboard.extra_columns import with_columns
from hierbench.leaderboard.row_checks import check_rows, rejected_rows
from hierbench.runs.findings import TARGETS_ALONE, ConsistencyCheck
from hierbench.runs.record import Record
from hierbench.runs.record_reader import read_records
from hierbench.runs.records import Records
from hierbench.runs.state import Note, State
from hierbench.utils.console import say
from hierbench.utils.errors import UserError
from hierbench.utils.text import one_line

MAX_NOTE_LENGTH = 600  # characters of a note
MAX_LINES = 20  # lines that a table is preceded by


def open_board(
    dataset: str,
    selection: RunSelection,
    columns: Sequence[Column] = PAPER_COLUMNS,
    numbers: str = "runs",
    *,
    with_unranked: bool = True,
) -> Board:
    """Return the board that a command was asked for; notes for its reader go to standard error.

    Args:
        dataset: its name, or the file of a user's dataset.
        selection: a runs folder, a folder of published tables, or the records of one; and prepared data, which gives
            the tree for further columns.
        columns: of the table.
        numbers: "runs", or "paper" for the published table.
        with_unranked: whether with the rows that no others are ranked with: scored here, or printed by other authors.
    """
    if numbers == "paper":
        options = (("a protocol", selection.protocol is not None), ("other metrics", tuple(columns) != PAPER_COLUMNS))
        for option, is_given in options:
            if is_given:
                raise UserError(f"the paper's tables are as printed: {option} is only for runs")
        return Board.paper(dataset, others=with_unranked)
    name = dataset_name(dataset)
    records = read_records(runs_folder(selection.runs, name))
    dataset_records = [record for record in records if record.dataset is None or record.dataset.name == name]
    rows = check_rows(dataset_records, records, records.ablated)
    try:
        checked_records = replace(records, rejected_row_ids=rejected_rows(rows))
        board = Board.of(
            dataset, checked_records, protocol=selection.protocol, scored=with_unranked, request=selection.request
        )
        return with_columns(board, columns, selection.data_dir)
    finally:
        note(
            with_limit([*records.notes, *notes_on(dataset_records, rows)], records.root)
        )  # also where they are why there is no table


def runs_folder(runs: Path, dataset: str) -> Path:
    """Return the folder with the runs of a dataset: a runs folder, or a folder inside published tables."""
    return runs / dataset if is_published(runs, dataset) and (runs / dataset).is_dir() else runs


def is_published(folder: Path, dataset: str) -> bool:
    """Whether a folder has the published table of a dataset, whose records are in `<dataset>/`."""
    return any(os.path.lexists(folder / f"{dataset}{suffix}") for suffix in (".json", ".md"))


def requested_records(root: Path, ids: Collection[str], hint: str) -> Records:
    """Return the runs that a command asked for and their bases; runs that do not count are named.

    Args:
        root: a runs folder.
        ids: of the runs.
        hint: ends the line of each run that is rejected.
    """
    records = read_records(root, ids)
    note(with_limit(notes_on(records, check_rows(records, records, records.ablated), hint=hint), root))
    return records


def notes_on(
    records: Iterable[Record], rows: Sequence[ConsistencyCheck], tables: Sequence[ConsistencyCheck] = (), hint: str = ""
) -> list[str]:
    """Return a line for each finding that a reader of a table must know, runs that do not count first."""
    records = list(records)
    lines = [_not_counted(record, hint) for record in records if record.state in ("damaged", "rejected")]
    ids = {record.id for record in records}
    for record in records:
        gone = [base[:12] for base in record.bases if base not in ids]
        if record.done and gone:
            lines.append(f"run {record.id[:12]} ({record.label}) is not counted: its base {gone[0]} is not here")
    for kind, findings, consequence in (("row", rows, " and not ranked"), ("table", tables, "")):
        rejected = [finding for finding in findings if finding.rejected]
        lines += [f"{kind} {finding.label} is rejected{consequence}: {finding.why()}" for finding in rejected]
    for kind, labelled_notes in (
        ("row", [(row.label, note) for row in rows for note in row.notes]),
        ("run", [(record.label, note) for record in records if record.done for note in record.notes]),
        ("table", [(table.label, note) for table in tables for note in table.notes]),
    ):
        lines += _group_notes(kind, labelled_notes)
    if any(note.kind == "targets unknown" for record in records if record.done for note in record.notes):
        lines.append(TARGETS_ALONE)
    return lines


def _not_counted(record: Record, hint: str) -> str:
    subject = f"run {record.id[:12]}" + (f" ({record.label})" if record.dataset is not None else "")
    if record.state == State.REJECTED:
        return f"{subject} is rejected and not counted: {'; '.join(record.findings)}{hint}"
    if record.folder.is_symlink():
        return f"{subject} is a symbolic link, which is not followed, and not counted"
    again = "hierbench run computes it again"
    if record.scored is not None:
        again = "remove its folder and score the file again"
    return f"{subject} is damaged ({', '.join(record.damaged)}) and not counted; {again}"


def _group_notes(kind: str, labelled_notes: Iterable[tuple[str, Note]]) -> list[str]:
    """Return a line per note, with the names that have it; see `Note.kind` for the omitted kinds."""
    labels_by_note: dict[str, list[str]] = {}
    for label, note in labelled_notes:
        if note.kind == "other":
            labels_by_note.setdefault(note, []).append(label)
    return [
        f"{kind}{'s' if len(names) > 1 else ''} {', '.join(names[:3])}"
        f"{f' and {len(names) - 3} more' if len(names) > 3 else ''}: {line}"
        for line, names in labels_by_note.items()
    ]


def with_limit(lines: Sequence[str], root: Path) -> list[str]:
    """Return the first lines, and a line with the number of further ones."""
    num_more = len(lines) - MAX_LINES
    return (
        [*lines[:MAX_LINES], f"and {num_more} more; hierbench verify {root} shows all"] if num_more > 1 else list(lines)
    )


def note(lines: Sequence[str]) -> None:
    """Print notes on standard error, each in one line."""
    for line in lines:
        say(f"note: {one_line(line, MAX_NOTE_LENGTH)}")


def open_boards(folders: Sequence[Path]) -> list[Board]:
    """Return the last table of each recipe in these folders, of runs or of published tables.

    Raises:
        UserError: a folder is missing or has no table.
    """
    boards = []
    for folder in folders:
        if not folder.is_dir():
            raise UserError(f"no folder {folder}")
        names = sorted(path.name for path in folder.iterdir() if path.is_dir() and is_published(folder, path.name))
        if not names:
            names = sorted({record.dataset.name for record in read_records(folder) if record.dataset is not None})
        boards += [open_board(name, RunSelection(folder), with_unranked=False) for name in names]
    return boards
