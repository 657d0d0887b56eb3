"""Accuracy against mistake severity, one marker per row of the leaderboard, with 95% intervals."""

import textwrap
from collections.abc import Sequence

import numpy as np
from matplotlib.lines import Line2D

from hierbench.leaderboard.board_data import BoardData
from hierbench.leaderboard.pictures import style
from hierbench.leaderboard.pictures.figure_data import Floats, heading, remarks_on, require_runs
from hierbench.leaderboard.statistics import AXES, TOLERANCE, Row, pareto_front, printed, ranked_rows
from hierbench.utils.errors import UserError

HALF_DIGIT = 0.005  # half of the last printed digit
FAINT = 0.4  # opacity of a row that is not ranked
FILLING = {"pooled": "left", "type-I": "none"}


def tradeoff_values(rows: Sequence[Row]) -> tuple[Floats, Floats]:
    """Return severity and accuracy of rows, and their half-widths, [rows, 2] each; NaN for missing values."""
    cells = [[row.metrics[name] for name in AXES] for row in rows]
    means = np.array([[cell.mean for cell in pair] for pair in cells], dtype=np.float64)
    widths = np.array([[cell.ci95 for cell in pair] for pair in cells], dtype=np.float64)
    return means, widths


def competitive_band(rows: Sequence[Row]) -> tuple[float, float]:
    """Return the severities between which a row is competitive, see `hierbench.leaderboard.statistics.highlight`.

    The rule compares printed numbers, so the band ends where the next digit would be printed.
    """
    severities = tradeoff_values(rows)[0][:, 0].tolist()
    return min(severities), float(min(printed(value, 2) for value in severities) + TOLERANCE) + HALF_DIGIT


def draw(board: BoardData) -> style.Drawing:
    """Draw the rows of a leaderboard; the better corner is the upper left one."""
    require_runs(board)
    rows = [row for row in board.rows if all(row.metrics[name].mean is not None for name in AXES)]
    if not rows:
        raise UserError(f"no row of {board.dataset} has a mistake severity to draw")
    looks = style.assign_looks(rows)
    figure = style.new_figure(style.TWO_COLUMNS, 4.0)
    axes = figure.subplots()
    ranked = ranked_rows(rows)
    if ranked:
        low, high = competitive_band(ranked)
        axes.axvspan(low, high, color=style.LIGHT, alpha=0.6, linewidth=0, zorder=0)
    for row, (severity, top1) in zip(rows, tradeoff_values(rows)[0], strict=True):
        look = looks[style.look_key(row)]
        axes.errorbar(
            severity,
            top1,
            xerr=row.metrics["mistake_severity"].ci95,
            yerr=row.metrics["top1"].ci95,
            color=look.colour,
            marker=look.marker,
            markersize=5.5,
            fillstyle=FILLING.get(row.type, "full"),
            elinewidth=0.8,
            capsize=1.5,
            zorder=2 if look == style.OTHER_LOOK else 3,
            alpha=FAINT if row.lacking else 1.0,
            linestyle="none",
        )
    front = pareto_front(ranked)
    has_front = len(front) > 1
    if has_front:
        axes.plot(*tradeoff_values(front)[0].T, color=style.GREY, linewidth=0.8, linestyle=(0, (4, 3)), zorder=1)
    axes.margins(0.08)
    axes.set_title(heading(board), loc="left", pad=20)
    notes = [
        *(["band: competitive, severity at most 0.05 above the smallest"] if ranked else []),
        *(["dashed: no row beats these on both axes (Pareto front)"] if has_front else []),
        "whiskers: 95% intervals",
        "markers: open type-I, filled type-II" + (", half pooled" if any(row.type == "pooled" for row in rows) else ""),
        *(["faint: lacks seeds, not ranked"] if any(row.lacking for row in rows) else []),
    ]
    axes.set_xlabel("mistake severity (mean distance of the mistakes; smaller is better)")
    axes.set_ylabel("top-1 accuracy (%; larger is better)")
    axes.text(0.0, 1.01, textwrap.fill("; ".join(notes), 120), transform=axes.transAxes, **style.SMALL_NOTE)
    style.legend_below(
        figure, rows, looks, lambda look: Line2D([], [], **style.line_style(look) | {"linestyle": "none"})
    )
    absent = [row for row in board.rows if row.n and row not in rows]
    return style.Drawing(figure, remarks_on(board, absent, "no mistakes, so no severity"))
