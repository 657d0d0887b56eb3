"""The leaderboard of a command: made from its runs, written next to them and printed, without heavy imports."""

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hierbench.config.options import Options
from hierbench.leaderboard.board import Board
from hierbench.leaderboard.columns import PAPER, Column
from hierbench.leaderboard.formats import render
from hierbench.leaderboard.measured import with_columns
from hierbench.leaderboard.opening import asked_records
from hierbench.leaderboard.table import Shown, Table
from hierbench.leaderboard.tables.board import board_table
from hierbench.runs.mlflow_mirror import Mirror, default_uri, page_of_runs
from hierbench.utils.files import write_text

AGAIN = "; remove its folder to train it again"


@dataclass(frozen=True)
class Ended:
    """How a comparison ended.

    Attributes:
        board, table: its leaderboard; None where nothing was to run, as in a dry run.
        failures: a line for each job that failed.
        broken: how many methods could not be imported.
    """

    board: Board | None = None
    table: Table | None = None
    failures: Sequence[str] = ()
    broken: int = 0

    def shown(self, options: Options) -> Shown:
        """Return the leaderboard, where the results are, and what failed."""
        said = [] if self.board is None else _places(self.board, options)
        return Shown(self.table, [*said, *self.failures], 1 if self.failures or self.broken else 0)


def publish_board(
    options: Options, ids: Sequence[str], columns: Sequence[Column], mirror: Mirror | None = None
) -> Ended:
    """Return the leaderboard of a command's runs; with a mirror it is also written, and attached there."""
    board = Board.of(options.dataset, asked_records(options.runs, ids, AGAIN), list(ids))
    if tuple(columns) != PAPER:
        board = with_columns(board, columns, options.data_dir)
    table, file = board_table(board), options.runs / f"leaderboard-{board.dataset}.md"
    if mirror is None:
        return Ended(board, table)
    write_text(file.with_suffix(".json"), render(table, "json"))
    write_text(file, render(table))
    means = {
        f"{column.name}/{row.type} {row.title}": mean
        for column in board.columns
        for row in board.rows
        if column.name in row.metrics and (mean := row.metrics[column.name].mean) is not None
    }
    mirror.attach(file, means)
    return Ended(board, table)


def _places(board: Board, options: Options) -> list[str]:
    """Return lines that say where the results are."""
    lines = [f"\ntables: {options.runs}/leaderboard-{board.dataset}.md and .json; runs: {options.runs}/<id>/"]
    uri = options.mlflow or default_uri(options.runs)
    if address := page_of_runs(options.runs, uri, [run for row in board.rows for run in row.runs]):
        if uri.startswith("sqlite:///"):  # from any folder and shell: mlflow may not be on the path
            place = Path(uri.removeprefix("sqlite:///")).resolve()
            command = [sys.executable, "-m", "mlflow", "ui", "--backend-store-uri", f"sqlite:///{place}"]
            lines.append(f"serve:  {shlex.join(command)}")
        lines.append(f"browse: {address}")
    return lines
