"""A publication in a new folder: records, tables, sources of methods, pictures and the verdict of verification."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hierbench.config.sections import Protocol
from hierbench.experiments.publication import pictures
from hierbench.experiments.publication.records import Records, ids_of
from hierbench.experiments.publication.refusal import refuse_rejected
from hierbench.experiments.publication.sources import write_sources
from hierbench.experiments.verification import report as reports
from hierbench.experiments.verification.checked import checked_board
from hierbench.experiments.verification.findings import Finding, Report
from hierbench.experiments.verification.tables import columns_of
from hierbench.leaderboard.board import Board
from hierbench.leaderboard.columns import PAPER, Column, further
from hierbench.leaderboard.formats import Format, render
from hierbench.leaderboard.tables.board import board_table
from hierbench.runs.store import Store
from hierbench.utils.files import read_json_object, write_text

SUFFIXES: dict[Format, str] = {"json": ".json", "csv": ".csv", "latex": ".tex", "markdown": ".md"}


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
    records.keep(ids_of(Board.of(dataset, records.store, protocol=protocol), records.store))
    opened = checked_board(dataset, records.store, data_dir, protocol, columns)
    board, report, table = opened.board, opened.report, board_table(opened.board)
    refuse_rejected(board, report, records.store)
    report.folder = Path(name)
    notes = write_sources(records.store, [part.store for part in parts])
    for kind, suffix in SUFFIXES.items():
        write_text(folder / f"{name}{suffix}", render(table, kind))
    if draw:
        notes += pictures.draw(board, dataset, folder, opened.store, parts[-1].store, data_dir)
    report.tables = [Finding(name)]  # it was rendered from these records
    write_text(folder / f"{name}-verdict.json", reports.as_json([report]))
    return Publication(board, report, notes)


def read_board(folder: Path, dataset: str, data_dir: Path) -> Board:
    """Return the table of earlier published records, with verdicts; its files give the columns alone."""
    store, columns = Store(folder / dataset), columns_of_published(folder, dataset)
    return checked_board(dataset, store, data_dir, columns=columns).board


def columns_of_published(folder: Path, dataset: str) -> tuple[Column, ...]:
    """Return the columns of a published table, as far as its heading can be read."""
    try:
        return columns_of(read_json_object(folder / f"{dataset}.json"), folder / f"{dataset}.md")
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return PAPER
