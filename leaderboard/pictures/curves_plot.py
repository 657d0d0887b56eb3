"""Training loss, validation accuracy and HierDist@1 per epoch, methods side by side."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from hierbench.leaderboard.board_data import BoardData
from hierbench.leaderboard.extra_columns import counted_runs
from hierbench.leaderboard.pictures import style
from hierbench.leaderboard.pictures.figure_data import Floats, heading, label_row, remarks_on, require_runs
from hierbench.leaderboard.statistics import Row
from hierbench.runs.record import Record
from hierbench.utils.errors import UserError

CURVE_QUANTITIES = {
    "train_loss": "training loss (each method's own)",
    "val_top1": "validation accuracy (%)",
    "val_hierdist@1": "validation HierDist@1",
}
MARKERS_PER_CURVE = 8  # markers on a line, about


def band_over_seeds(histories: Sequence[Sequence[dict[str, float]]], name: str) -> Floats:
    """Return [4, E], the epochs and a column's mean, smallest and largest value over the histories of several seeds."""
    values = np.array([[row[name] for row in history] for history in histories])
    epochs = [row["epoch"] for row in histories[0]]
    return np.stack([epochs, values.mean(axis=0), values.min(axis=0), values.max(axis=0)])


def _row_bands(row: Row, runs: Sequence[Record]) -> dict[str, Floats] | None:
    """Return the bands of a row's runs; None for a re-ranking method, which trains nothing."""
    if any(run.bases for run in runs):
        return None
    if any(run.recorded_digest("history.csv") is None for run in runs):
        raise UserError(f"the history of {label_row(row)}, cannot be read: a run has none")
    histories = [run.history() for run in runs]
    return {name: band_over_seeds(histories, name) for name in CURVE_QUANTITIES}


def draw(board: BoardData) -> style.Drawing:
    """Draw a row of panels per type of model, a column per quantity, in each a line per method."""
    require_runs(board)
    rows = [row for row in board.rows if row.n]
    looks = style.assign_looks(rows)
    bands = [(row, _row_bands(row, counted_runs(row, board.records))) for row in rows]
    trained = [(row, band) for row, band in bands if band is not None]
    if not trained:
        raise UserError(f"none of the runs of {board.dataset} has a training curve: all of them re-rank")
    types = list(dict.fromkeys(row.type for row, _ in trained))
    figure = style.new_figure(style.TWO_COLUMNS, 0.8 + 1.9 * len(types))
    grid = figure.subplots(len(types), len(CURVE_QUANTITIES), sharex=True, sharey="col", squeeze=False)
    for panels, kind in zip(grid, types, strict=True):
        for axes, (name, label) in zip(panels, CURVE_QUANTITIES.items(), strict=True):
            for row, band in trained:
                if row.type == kind:
                    epochs, mean, low, high = band[name]
                    line = style.line_style(looks[style.look_key(row)])
                    axes.fill_between(epochs, low, high, color=line["color"], alpha=0.2, linewidth=0)
                    axes.plot(epochs, mean, markevery=max(1, round(len(epochs) / MARKERS_PER_CURVE)), **line)
            axes.set_title(f"{kind}: {label}")
            axes.set_xlabel("epoch" if kind == types[-1] else "")
            axes.xaxis.set_major_locator(MaxNLocator(6, integer=True, min_n_ticks=1))
        if min(float(band["train_loss"][2].min()) for _, band in trained) > 0.0:
            _decades(panels[0])
    style.legend_below(
        figure, [row for row, _ in trained], looks, lambda look: Line2D([], [], **style.line_style(look))
    )
    figure.suptitle(
        f"{heading(board)}. Lines: mean over seeds, bands: from the smallest to the largest",
        fontsize=8.0,
    )
    absent = [row for row, band in bands if band is None]
    return style.Drawing(figure, remarks_on(board, absent, "these re-rank and train nothing"))


def _decades(axes: Axes) -> None:
    """Make the y axis logarithmic, with plain numbers."""
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_locator(NullLocator())
