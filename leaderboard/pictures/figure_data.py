"""The data of figures: runs as the leaderboard selects them, and their curves."""

from collections.abc import Sequence
from importlib import import_module

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hierbench.config.recipe import dataset_title
from hierbench.leaderboard.board_data import BoardData
from hierbench.leaderboard.pictures import PLOT_TITLES
from hierbench.leaderboard.pictures.style import Drawing, house_style
from hierbench.leaderboard.statistics import Row, summarise
from hierbench.leaderboard.tables.board_table import lacking
from hierbench.utils.errors import UserError, unknown_name

Floats = NDArray[np.float64]


def draw(kind: str, board: BoardData) -> Drawing:
    """Draw a kind of picture of a board's runs in the project's style."""
    if kind not in PLOT_TITLES:
        raise unknown_name("plot", kind, PLOT_TITLES)
    with house_style():
        drawing: Drawing = import_module(f"hierbench.leaderboard.pictures.{kind}_plot").draw(board.of_runs)
    return drawing


def require_runs(board: BoardData) -> None:
    """Raise a UserError for a board without a finished run."""
    if not any(row.n for row in board.rows):
        raise UserError(f"no run of {board.dataset} in {board.records.root} is finished yet")


def over_runs(values: Sequence[ArrayLike], ddof: int) -> Floats:
    """Return [2, n], mean and half-width of the interval over runs (NaN for one run), from the n values of each."""
    cells = [summarise(run_values, ddof) for run_values in np.stack(values).T.tolist()]
    return np.array([[cell.mean for cell in cells], [cell.ci95 for cell in cells]], dtype=np.float64)


def remarks_on(board: BoardData, absent: list[Row] | None = None, reason: str = "") -> list[str]:
    """Return a leaderboard's settings, its rows that lack runs, and why the absent rows are not in the figure."""
    settings = [f"settings: {board.settings}"] if board.remarks else []
    incomplete = [
        f"{label_row(row)}: {row.n} of {row.planned} runs are finished" for row in board.rows if row.n < row.planned
    ]
    incomplete += [f"{label_row(row)}: {lacking(row)}" for row in board.rows if row.lacking]
    missing = [f"not shown: {'; '.join(map(label_row, absent))}: {reason}"] if absent else []
    return settings + incomplete + missing


def label_row(row: Row) -> str:
    """Return how a message names a row."""
    return f"{row.title}, {row.type}"


def heading(board: BoardData) -> str:
    """Return the title of a leaderboard's figure: the dataset, as the user gave it, and the source of the numbers."""
    numbers = "published numbers" if board.protocol == "published" else f"protocol {board.protocol}"
    return f"{dataset_title(board.file or board.dataset)}, {numbers}"
