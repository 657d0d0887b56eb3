"""The leaderboard of a command: made from its runs, written next to them and printed, without heavy imports."""

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hierbench.config.options import Options
from hierbench.leaderboard.board import Board, board_from_runs
from hierbench.leaderboard.columns import PAPER, Column
from hierbench.leaderboard.measured import with_columns
from hierbench.leaderboard.render import as_json, markdown
from hierbench.runs.mlflow_mirror import default_uri
from hierbench.runs.store import Store
from hierbench.utils.console import say
from hierbench.utils.files import as_json_text, write_text


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


def show_board(board: Board, options: Options, more: Mapping[str, Any] | None = None) -> None:
    """Print a leaderboard and where the results are; `more` are further keys of its JSON."""
    text = f"\n{markdown(board)}"
    if options.as_json:
        text = as_json(board) if more is None else as_json_text(json.loads(as_json(board)) | more)
    print(text, end="", flush=True)
    say(f"\ntables: {options.runs}/leaderboard-{board.dataset}.md and .json; runs: {options.runs}/<id>/")
    if options.mlflow is None and default_uri(options.runs).startswith("sqlite:"):
        say(f"browse: uv run mlflow ui --backend-store-uri {shlex.quote(default_uri(options.runs))}")
