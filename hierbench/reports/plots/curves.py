"""Training loss, validation accuracy and HierDist@1 per epoch, methods side by side."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator
from numpy.typing import NDArray

from hierbench.leaderboard.statistics import Row
from hierbench.reports.plots import style
from hierbench.reports.plots.source import Request, board_of, finished_runs, heading, name_of, remarks_on
from hierbench.runs.store import Run
from hierbench.utils.errors import UserError

QUANTITIES = {
    "train_loss": "training loss (each method's own)",
    "val_top1": "validation accuracy (%)",
    "val_hierdist@1": "validation HierDist@1",
}
MARKS = 8  # markers on a line, about
Band = NDArray[np.float64]


def band_over_seeds(histories: Sequence[Sequence[dict[str, float]]], name: str) -> Band:
    """Return [4, E], the epochs and a column's mean, smallest and largest value over the histories of several seeds.

    A KeyError says that a history has no such column, a ValueError that they differ in length or that one is empty.
    """
    values = np.array([[row[name] for row in history] for history in histories])
    if values.ndim != 2 or not values.size:
        raise ValueError("histories of different length")
    epochs = [row["epoch"] for row in histories[0]]
    return np.stack([epochs, values.mean(axis=0), values.min(axis=0), values.max(axis=0)])


def _bands_of(row: Row, runs: Sequence[Run]) -> dict[str, Band] | None:
    """Return the bands of a row's runs; None for a re-ranking method, which trains nothing."""
    if any(run.spec().get("base") is not None for run in runs):
        return None
    try:
        histories = [run.history() for run in runs]
        return {name: band_over_seeds(histories, name) for name in QUANTITIES}
    except (OSError, KeyError, ValueError, TypeError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise UserError(f"the history of {name_of(row)}, cannot be read ({reason})") from None


def draw(request: Request) -> style.Drawing:
    """Draw a row of panels per type of model, a column per quantity, in each a line per method."""
    board = board_of(request)
    rows = [row for row in board.rows if row.n]
    looks = style.looks_of(rows)
    bands = [(row, _bands_of(row, finished_runs(request, row))) for row in rows]
    trained = [(row, band) for row, band in bands if band is not None]
    if not trained:
        raise UserError(f"none of the runs of {request.dataset} has a training curve: all of them re-rank")
    types = list(dict.fromkeys(row.type for row, _ in trained))
    figure = style.new_figure(style.DOUBLE, 0.8 + 1.9 * len(types))
    grid = figure.subplots(len(types), len(QUANTITIES), sharex=True, sharey="col", squeeze=False)
    for panels, kind in zip(grid, types, strict=True):
        for axes, (name, label) in zip(panels, QUANTITIES.items(), strict=True):
            for row, band in trained:
                if row.type == kind:
                    _line(axes, band[name], looks[style.key_of(row)])
            axes.set_title(f"{kind}: {label}")
            axes.set_xlabel("epoch" if kind == types[-1] else "")
            axes.xaxis.set_major_locator(MaxNLocator(6, integer=True, min_n_ticks=1))
        if min(float(band["train_loss"][2].min()) for _, band in trained) > 0.0:
            _decades(panels[0])
    style.legend_below(figure, [row for row, _ in trained], looks, lambda look: Line2D([], [], **style.line_of(look)))
    figure.suptitle(
        f"{heading(board, request.dataset)}. Lines: mean over seeds, bands: from the smallest to the largest",
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


def _line(axes: Axes, band: Band, look: style.Look) -> None:
    epochs, mean, low, high = band
    axes.fill_between(epochs, low, high, color=look.colour, alpha=0.2, linewidth=0)
    axes.plot(epochs, mean, markevery=max(1, round(len(epochs) / MARKS)), **style.line_of(look))
