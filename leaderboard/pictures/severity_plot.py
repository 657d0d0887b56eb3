"""Mistakes by hierarchical distance, methods side by side."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from hierbench.leaderboard.board_data import BoardData
from hierbench.leaderboard.extra_columns import counted_runs
from hierbench.leaderboard.pictures import style
from hierbench.leaderboard.pictures.figure_data import Floats, heading, over_runs, remarks_on, require_runs
from hierbench.leaderboard.statistics import Row
from hierbench.runs.record import Record
from hierbench.utils.errors import UserError

GROUP_WIDTH = 0.84  # of the room of a distance, shared by the bars of all methods
LABELS = {
    "height": "height of the lowest common ancestor",
    "depth": "height of the tree minus depth of the lowest common ancestor",
}


def mistake_shares(counts: Sequence[int], top1: float) -> Floats:
    """Return [h] shares, in per cent of all examples, of the mistakes at distance 1 to h.

    Args:
        counts: [h + 1] mistakes at distance 0 to h, see `hierbench.metrics.mistakes_by_distance`.
        top1: accuracy in per cent; the shares and it add up to 100.
    """
    mistakes = np.asarray(counts[1:], dtype=np.float64)
    return mistakes * ((100.0 - top1) / max(1.0, float(mistakes.sum())))


def _mistake_shares(run: Record) -> Floats:
    counts = run.result.get("mistakes_by_distance")
    if not counts:
        raise UserError(f"{run.folder}/metrics.json has no mistakes_by_distance; remove the folder to run it again")
    return mistake_shares(counts, run.result["test"]["top1"])


def draw(board: BoardData) -> style.Drawing:
    """Draw a panel per type of model, in it a group of bars per distance, one bar per method."""
    require_runs(board)
    rows = [row for row in board.rows if row.n]
    looks = style.assign_looks(rows)
    bars: list[tuple[Row, Floats]] = []
    for row in rows:
        runs = counted_runs(row, board.records)
        bars.append((row, over_runs([_mistake_shares(run) for run in runs], runs[0].job.evaluation.ddof)))
    types = list(dict.fromkeys(row.type for row in rows))
    figure = style.new_figure(style.TWO_COLUMNS, 0.7 + 1.9 * len(types))
    panels = figure.subplots(len(types), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    for axes, kind in zip(panels, types, strict=True):
        _panel(axes, [(row, values) for row, values in bars if row.type == kind], looks)
        axes.set_title(f"{heading(board)}, {kind}", loc="left")
        axes.set_ylabel("mistakes (% of test images)")
    panels[0].set_ylim(bottom=0.0)
    style.note(panels[0], "mean over seeds, whiskers: 95% t-interval")
    panels[-1].set_xlabel(LABELS[board.distance])
    style.legend_below(figure, rows, looks, lambda look: Patch(**style.filling(look)))
    return style.Drawing(figure, remarks_on(board))


def _panel(axes: Axes, bars: list[tuple[Row, Floats]], looks: dict[tuple[str, str], style.LineLook]) -> None:
    width = GROUP_WIDTH / max(len(bars), 3)
    distances = np.arange(1, bars[0][1].shape[1] + 1)
    for i, (row, (means, half_widths)) in enumerate(bars):
        at = distances + (i - (len(bars) - 1) / 2.0) * width
        axes.bar(at, means, width * 0.92, **style.filling(looks[style.look_key(row)]))
        axes.errorbar(at, means, half_widths, fmt="none", ecolor=style.GREY, elinewidth=0.7, capsize=1.2)
    axes.set_xticks(distances)
