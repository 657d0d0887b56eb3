"""The leaderboard of a command: made from its runs, written next to them and printed, without heavy imports."""

import os
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hierbench.config.options import Options
from hierbench.experiments.checking import verified_runs
from hierbench.experiments.shown import Shown
from hierbench.experiments.verification.cache import SETTLED
from hierbench.leaderboard.board import Board
from hierbench.leaderboard.columns import PAPER, Column, further
from hierbench.leaderboard.formats import render
from hierbench.leaderboard.measured import with_columns
from hierbench.leaderboard.rows import Verified
from hierbench.leaderboard.table import Table
from hierbench.leaderboard.tables.board import board_table
from hierbench.runs.mlflow_mirror import default_uri
from hierbench.runs.store import Store
from hierbench.utils.files import write_text

AGAIN = "; remove its folder to train it again"


@dataclass(frozen=True)
class Published:
    """The leaderboard of a command, the runs that count behind it, and the markdown file that it was written to."""

    board: Board
    table: Table
    store: Verified
    file: Path


@dataclass(frozen=True)
class Ended:
    """How a command that trains ended.

    Attributes:
        published: its leaderboard; None where nothing was to run, as in a dry run.
        failures: a line for each job that failed.
        broken: how many methods could not be imported.
        more: further keys of the leaderboard's JSON.
    """

    published: Published | None = None
    failures: tuple[str, ...] = ()
    broken: int = 0
    more: Mapping[str, Any] | None = None

    @property
    def code(self) -> int:
        """The exit code: 1 where a job failed or a method is broken."""
        return 1 if self.failures or self.broken else 0


def publish_board(options: Options, ids: Sequence[str], columns: Sequence[Column] = PAPER) -> Published:
    """Write the leaderboard of a command's runs as markdown and JSON."""
    runs = options.runs
    found = verified(options, ids, columns)
    board = Board.of(options.dataset, found, list(ids))
    if tuple(columns) != PAPER:
        board = with_columns(board, columns, found, options.data_dir)
    table, file = board_table(board), runs / f"leaderboard-{board.dataset}.md"
    write_text(file.with_suffix(".json"), render(table, "json"))
    write_text(file, render(table))
    return Published(board, table, found, file)


def verified(options: Options, ids: Sequence[str], columns: Sequence[Column] = PAPER) -> Verified:
    """Verify the runs of a command's table, and say which are rejected.

    What has just been written is given the time after which findings are kept, so that the same command can answer
    without verifying it again.
    """
    store = Store(options.runs)
    newest = max((_changed(store.run(run_id).folder) for run_id in ids), default=0)
    time.sleep(min(max(newest + SETTLED - time.time_ns(), 0), SETTLED) / 1e9)
    return verified_runs(options.dataset, store, ids, options.data_dir, further(columns), AGAIN)


def _changed(folder: Path) -> int:
    """Return when something in a folder was last changed, in ns."""
    with os.scandir(folder) as entries:
        return max([folder.stat().st_ctime_ns, *(entry.stat(follow_symlinks=False).st_ctime_ns for entry in entries)])


def shown_board(ended: Ended, options: Options) -> Shown:
    """Return a command's leaderboard, where its results are, and what failed."""
    if (made := ended.published) is None:
        return Shown(None, ended.failures, ended.code)
    table = replace(made.table, content={**(made.table.content or {}), **(ended.more or {})})
    return Shown(table, [*places(made.board, options), *ended.failures], ended.code)


def places(board: Board, options: Options) -> list[str]:
    """Return lines that say where the results are."""
    lines = [f"\ntables: {options.runs}/leaderboard-{board.dataset}.md and .json; runs: {options.runs}/<id>/"]
    if options.mlflow is None and (uri := default_uri(options.runs)).startswith("sqlite:///"):
        place = Path(uri.removeprefix("sqlite:///")).resolve()
        command = [sys.executable, "-m", "mlflow", "ui", "--backend-store-uri", f"sqlite:///{place}"]
        lines.append(f"browse: {shlex.join(command)}")  # from any folder and shell: mlflow may not be on the path
    return lines
