"""Accuracy at every level of the tree, of the class ranked first and of lifted probabilities."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from hierbench.figures.plots import style
from hierbench.figures.plots.figure_data import (
    BY_LEVEL,
    FigureRequest,
    Floats,
    heading,
    level_names,
    open_figure_board,
    over_runs,
    remarks_on,
    require_tree,
)
from hierbench.leaderboard.extra_columns import counted_runs, measure
from hierbench.leaderboard.statistics import Row
from hierbench.runs.further_metrics import read_further
from hierbench.utils.errors import UserError

NOTHING = "the runs of {} have no predictions.npz: published records have none"
SPREAD = 0.8  # of the room of a level, shared by the markers of all methods
MAX_LABELLED_LEVELS = 8  # levels, up to which the ticks say how many nodes there are


def draw(request: FigureRequest) -> style.Drawing:
    """Draw a row of panels per type of model, one per way to predict a node, in each a marker per method and level.

    The markers of a level are side by side, in the order of the legend. No line joins those of two levels: its slope
    would depend on the place in that order.
    """
    board = open_figure_board(request)
    runs = {row.key: counted_runs(row, board.records) for row in board.rows}
    shown_runs = [run for row_runs in runs.values() for run in row_runs]
    if not any(run.has_predictions or read_further(run, board.records) for run in shown_runs):
        raise UserError(NOTHING.format(request.dataset))
    sizes = require_tree(request.dataset, request.data_dir).hierarchy.level_sizes
    names = level_names(len(sizes))
    measured = measure(shown_runs, names, board.records, request.data_dir)
    values_by_row = {key: [measured[run.id] for run in row_runs] for key, row_runs in runs.items()}
    shown = [
        row for row in board.rows if row.n and all(values.keys() >= set(names) for values in values_by_row[row.key])
    ]
    if not shown:
        raise UserError(NOTHING.format(request.dataset))
    lines: list[tuple[Row, dict[str, Floats]]] = []
    for row in shown:
        values = [[run_values[name] for name in names] for run_values in values_by_row[row.key]]
        cells = over_runs(values, runs[row.key][0].job.evaluation.ddof)
        lines.append((row, dict(zip(BY_LEVEL, np.split(cells, len(BY_LEVEL), axis=1), strict=True))))
    types = list(dict.fromkeys(row.type for row in shown))
    looks = style.assign_looks(shown)
    figure = style.new_figure(style.TWO_COLUMNS, 0.9 + 2.0 * len(types))
    grid = figure.subplots(len(types), len(BY_LEVEL), sharex=True, sharey=True, squeeze=False)
    for panels, type_ in zip(grid, types, strict=True):
        for axes, (kind, about) in zip(panels, BY_LEVEL.items(), strict=True):
            _panel(axes, [(row, values[kind]) for row, values in lines if row.type == type_], looks, sizes)
            axes.set_title(f"{type_}: {about}", loc="left")
        panels[0].set_ylabel("accuracy (%)")
    bottom, top = grid[0, 0].get_ylim()  # of all panels
    grid[0, 0].set_ylim(max(bottom, 0.0), min(top, 100.5))  # whiskers may go further, accuracies do not
    for axes in grid[-1]:
        axes.set_xlabel("level, from the coarsest to the classes")
    figure.suptitle(f"{heading(board, request.dataset)}. Mean over seeds, whiskers: 95% t-interval", fontsize=8.0)
    style.legend_below(figure, shown, looks, lambda look: Line2D([], [], **_level_marker(look)))
    absent = [row for row in board.rows if row.n and row not in shown]
    remarks = remarks_on(board, absent, "no predictions.npz")
    if any(run.bases for row in shown for run in runs[row.key]):
        remarks.append("probabilities of rows that re-rank, unless they are a distribution, are those of their base")
    return style.Drawing(figure, remarks)


def _level_marker(look: style.LineLook) -> dict[str, Any]:
    return style.line_style(look) | {"linestyle": "none", "markersize": 4}


def _panel(
    axes: Axes,
    lines: Sequence[tuple[Row, Floats]],
    looks: Mapping[tuple[str, str], style.LineLook],
    sizes: Sequence[int],
) -> None:
    levels = np.arange(1, len(sizes) + 1)
    step = SPREAD / max(len(lines), 3)
    for i, (row, (means, half_widths)) in enumerate(lines):
        at = levels + (i - (len(lines) - 1) / 2.0) * step
        axes.errorbar(at, means, half_widths, elinewidth=0.7, capsize=1.2, **_level_marker(looks[style.look_key(row)]))
    few = len(sizes) <= MAX_LABELLED_LEVELS
    labels = [f"{level}\n{size} nodes" if few else f"{level}" for level, size in zip(levels, sizes, strict=True)]
    axes.set_xticks(levels, labels)
    axes.set_xlim(0.5, len(sizes) + 0.5)
    for level in levels[:-1]:
        axes.axvline(level + 0.5, color=style.LIGHT, linewidth=0.6, zorder=0)
