"""A table with the records of its runs, small enough to commit."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from hierbench.errors import UserError
from hierbench.files import read_bytes, write_text
from hierbench.leaderboard.board import Board
from hierbench.leaderboard.render import as_json, markdown
from hierbench.store import Store

RECORDS = ("spec.json", "status.json", "metrics.json", "history.csv", "environment.json", "tuning.json")


def publish_board(board: Board, store: Store, folder: Path) -> Path:
    """Write `<dataset>.md`, `<dataset>.json` and `<dataset>/<id>/` with the records; return the table's path.

    Raises:
        UserError: a run of the table is not finished, so the table would not be what it says.
    """
    unfinished = [row.title for row in board.rows if row.n < row.planned]
    if unfinished:
        raise UserError(f"not all runs of {unfinished[0]} are finished; a published table is complete")
    records = folder / board.dataset
    if records.exists():
        raise UserError(f"{records} exists; move it away to publish again")
    staging = folder / f".{board.dataset}.partial-{os.getpid()}"
    try:
        for row in board.rows:
            for run_id in row.runs:
                (staging / run_id).mkdir(parents=True)
                for name in RECORDS:
                    if (store.run(run_id).folder / name).exists():
                        (staging / run_id / name).write_bytes(read_bytes(store.run(run_id).folder / name))
        table = folder / f"{board.dataset}.md"
        write_text(folder / f"{board.dataset}.json", as_json(board))
        write_text(table, markdown(board))
        staging.rename(records)  # last: what exists is whole
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return table
