"""A publication in a new folder: records, tables, sources of methods, pictures and the verdict of verification."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hierbench.config.sections import Protocol
from hierbench.experiments.checking import Counted
from hierbench.experiments.publication import pictures
from hierbench.experiments.publication.records import Records, ids_of
from hierbench.experiments.publication.refusal import refuse_rejected
from hierbench.experiments.publication.sources import write_sources
from hierbench.experiments.verification import report as reports
from hierbench.experiments.verification.checked import board_of, checked_board, checked_runs
from hierbench.experiments.verification.findings import Report
from hierbench.experiments.verification.tables import check_tables
from hierbench.leaderboard.board import Board, board_with_scored
from hierbench.leaderboard.columns import PAPER, Column, column_of, further
from hierbench.leaderboard.measured import with_columns
from hierbench.leaderboard.render import FORMATS
from hierbench.leaderboard.statistics import METRICS
from hierbench.runs.store import Store
from hierbench.utils.errors import UserError
from hierbench.utils.files import read_json_object, read_text, write_text

SUFFIXES = {"json": ".json", "csv": ".csv", "latex": ".tex", "markdown": ".md"}


@dataclass(frozen=True)
class Part:
    """Runs of one folder that a publication is made of."""

    store: Store
    ids: Sequence[str]


@dataclass
class Publication:
    """What was written.

    Attributes:
        board: the table.
        report: of the verification of the folder that was written.
        notes: a line each on what was left out.
    """

    board: Board
    report: Report
    notes: list[str] = field(default_factory=list)


def compose(
    folder: Path,
    dataset: str,
    parts: Sequence[Part],
    data_dir: Path,
    protocol: Protocol | None = None,
    columns: Sequence[Column] = PAPER,
    *,
    draw: bool = True,
) -> Publication:
    """Write the publication of a dataset into a folder that has none of it.

    Args:
        folder: of publications.
        dataset: its name or the file of a user's dataset.
        parts: the runs; those of later parts are newer.
        data_dir: prepared data.
        protocol: of the table.
        columns: of the table; values of further ones are kept with the runs.
        draw: whether with pictures.

    Raises:
        UserError: verification rejects what would be published, or a record cannot be published.
    """
    name = parts[0].store.run(parts[0].ids[0]).spec()["dataset"]["name"]
    records = Records(folder / name, data_dir)
    for part in parts:
        records.add(part.store, part.ids, further(columns))
    records.keep(ids_of(board_with_scored(dataset, records.store, protocol), records.store))
    counted, report = checked_runs(dataset, records.store, data_dir, further(columns))
    board = board_of(dataset, counted, report, data_dir, protocol)
    refuse_rejected(board, report, records.store)
    report.folder = Path(name)
    if tuple(columns) != PAPER:
        board = with_columns(board, columns, records.store, data_dir)
    notes = write_sources(records.store, [part.store for part in parts])
    for kind, suffix in SUFFIXES.items():
        write_text(folder / f"{name}{suffix}", FORMATS[kind](board))
    if draw:
        verified = Counted(counted, report.rejected_ids)
        notes += pictures.draw(board, dataset, folder, verified, parts[-1].store, data_dir)
    report.tables = check_tables(report, name, records.store, data_dir)
    for table in report.tables:
        table.label = name
        if table.rejected:
            raise UserError(f"the table of {name} is not what its records give: {table.reasons[0]}")
    write_text(folder / f"{name}-verdict.json", reports.as_json([report]))
    return Publication(board, report, notes)


def read_board(folder: Path, dataset: str, data_dir: Path) -> Board:
    """Return the table of earlier published records, with verdicts; its files give the columns alone."""
    store, columns = Store(folder / dataset), columns_of(folder, dataset)
    board, _ = checked_board(dataset, store, data_dir, metrics=further(columns))
    return board if columns == PAPER else with_columns(board, columns, store, data_dir)


def columns_of(folder: Path, dataset: str) -> tuple[Column, ...]:
    """Return the columns of a published table, as far as its heading can be read."""
    try:
        rows = read_json_object(folder / f"{dataset}.json")["rows"]
        names = dict.fromkeys(name for row in rows for name in row["metrics"] if name not in METRICS)
        known = {column.heading: column for column in (*PAPER, *map(column_of, names))}
        page = folder / f"{dataset}.md"
        heads = [head.strip() for head in read_text(page).split("\n")[0].split("|")] if os.path.lexists(page) else []
        found = tuple(known[head] for head in heads if head in known)
        there = tuple(column for column in PAPER if any(column.name in row["metrics"] for row in rows))
        return PAPER if not found or found == there else found
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return PAPER
