"""The leaderboard of a command: made from its runs, written beside them, and shown. Nothing heavy is imported here."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from hierbench.config.options import Options
from hierbench.data.prepared import Prepared
from hierbench.leaderboard.board import Board, board_from_runs
from hierbench.leaderboard.render import as_json, markdown
from hierbench.runs.mlflow_mirror import default_uri
from hierbench.runs.store import Store
from hierbench.utils.console import say
from hierbench.utils.files import write_text


def publish_board(dataset: str, runs: Path, ids: Sequence[str]) -> tuple[Board, Path]:
    """Return the leaderboard of some runs, and the file that it was written to; one in JSON lies beside it."""
    board = board_from_runs(dataset, Store(runs), list(ids))
    table = runs / f"leaderboard-{dataset}.md"
    write_text(table.with_suffix(".json"), as_json(board))
    write_text(table, markdown(board))
    return board, table


def show_board(board: Board, options: Options) -> None:
    """Print a leaderboard, and say where everything is."""
    print(as_json(board) if options.as_json else f"\n{markdown(board)}", end="", flush=True)
    say(f"\ntables: {options.runs}/leaderboard-{board.dataset}.md and .json; runs: {options.runs}/<id>/")
    if options.mlflow is None and default_uri(options.runs).startswith("sqlite:"):
        say(f"browse: uv run mlflow ui --backend-store-uri {shlex.quote(default_uri(options.runs))}")


def say_notes(prepared: Prepared) -> None:
    """Say what is odd about a dataset, and on what terms it may be used."""
    for note in (prepared.meta["remark"], prepared.meta.get("notice", "")):
        if note:
            say(f"note: {note}")
