"""The leaderboard of a command: made from its runs, written next to them and printed, without heavy imports."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from hierbench.config.options import Options
from hierbench.leaderboard.board import Board, board_from_runs
from hierbench.leaderboard.columns import PAPER, Column
from hierbench.leaderboard.measured import with_columns
from hierbench.leaderboard.render import as_json, markdown
from hierbench.runs.mlflow_mirror import default_uri
from hierbench.runs.store import Store
from hierbench.utils.console import say
from hierbench.utils.files import write_text


def publish_board(options: Options, ids: Sequence[str], columns: Sequence[Column] = PAPER) -> tuple[Board, Path]:
    """Write the leaderboard of a command's runs as markdown and JSON; return it and the markdown file."""
    runs = options.runs
    board = board_from_runs(options.dataset, Store(runs), list(ids))
    if tuple(columns) != PAPER:
        board = with_columns(board, columns, Store(runs), options.data_dir)
    table = runs / f"leaderboard-{board.dataset}.md"
    write_text(table.with_suffix(".json"), as_json(board))
    write_text(table, markdown(board))
    return board, table


def show_board(board: Board, options: Options) -> None:
    """Print a leaderboard and where the results are."""
    print(as_json(board) if options.as_json else f"\n{markdown(board)}", end="", flush=True)
    say(f"\ntables: {options.runs}/leaderboard-{board.dataset}.md and .json; runs: {options.runs}/<id>/")
    if options.mlflow is None and default_uri(options.runs).startswith("sqlite:"):
        say(f"browse: uv run mlflow ui --backend-store-uri {shlex.quote(default_uri(options.runs))}")
