"""Accuracy against mistake severity, one marker per row of the leaderboard, with 95% intervals."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray

from hierbench.figures.plots import style
from hierbench.figures.plots.figure_data import FigureRequest, Floats, heading, open_figure_board, remarks_on
from hierbench.leaderboard.statistics import AXES, TOLERANCE, Row, pareto_front, printed, ranked_rows
from hierbench.utils.errors import UserError

ROUNDING = 0.005  # half of the last printed digit
RINGS = (1.0, 1.5, 2.1, 2.8, 3.6, 4.6, 5.8)  # gaps between a point and its label that are tried
DIRECTIONS = 24
SWEEPS = 6
FAINT = 0.4  # opacity of a row that is not ranked


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
    return min(severities), float(min(printed(value, 2) for value in severities) + TOLERANCE) + ROUNDING


def draw(request: FigureRequest) -> style.Drawing:
    """Draw the rows of a leaderboard; the better corner is the upper left one."""
    board = open_figure_board(request)
    rows = [row for row in board.rows if all(row.metrics[name].mean is not None for name in AXES)]
    if not rows:
        raise UserError(f"no row of {request.dataset} has a mistake severity to draw")
    looks = style.assign_looks(rows)
    figure = style.new_figure(style.DOUBLE, 4.0)
    axes = figure.subplots()
    if ranked := ranked_rows(rows):
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
            markerfacecolor=look.colour if row.type == "type-II" else "none",
            elinewidth=0.8,
            capsize=1.5,
            zorder=3,
            alpha=FAINT if row.lacking else 1.0,
        )
    if has_front := len(front := pareto_front(ranked)) > 1:
        axes.plot(*tradeoff_values(front)[0].T, color=style.GREY, linewidth=0.8, linestyle=(0, (4, 3)), zorder=1)
    axes.margins(0.08)
    axes.set_title(heading(board, request.dataset), loc="left")
    style.note(
        axes,
        ("band: competitive, severity at most 0.05 above the smallest\n" if ranked else "")
        + ("dashed: rows that no other beats on both axes (Pareto front)\n" if has_front else "")
        + "whiskers: 95% intervals; markers: open type-I, filled type-II"
        + ("\nfaint: lacks seeds of the table, not ranked" if any(row.lacking for row in rows) else ""),
    )
    axes.set_xlabel("mistake severity (mean hierarchical distance of the mistakes; smaller is better)")
    axes.set_ylabel("top-1 accuracy (%; larger is better)")
    _annotate(figure, axes, rows)
    absent = [row for row in board.rows if row.n and row not in rows]
    return style.Drawing(figure, remarks_on(board, absent, "no mistakes, so no severity"))


def _annotate(figure: Figure, axes: Axes, rows: Sequence[Row]) -> None:
    """Write each row's name next to its marker, with a thin line to it where it had to move away."""
    renderer: Any = FigureCanvasAgg(figure).get_renderer()  # type: ignore[no-untyped-call]
    labels = [f"{style.plain(row.title)}, {row.type}" for row in rows]
    texts = [axes.text(0, 0, label, fontsize=style.SMALL, ha="center", va="center") for label in labels]
    for text in texts:
        text.set_in_layout(False)  # they have no place yet
    figure.draw_without_rendering()  # settles the layout, so that data have a place on the page
    unit = figure.dpi / 72.0  # pixels per point
    page = axes.transData
    means, widths = tradeoff_values(rows)
    points = page.transform(means)
    whiskers = page.transform(means + np.nan_to_num(widths)) - points
    extents = [text.get_window_extent(renderer) for text in texts]
    boxes = place_labels(
        points,
        np.array([(extent.width + 2.0 * unit, extent.height + unit) for extent in extents]),
        _marker_boxes(points, whiskers, 4.0 * unit),
        np.array(axes.get_window_extent(renderer).extents),
        gap=6.0 * unit,
    )
    for text, box, point in zip(texts, boxes, points, strict=True):
        x, y = page.inverted().transform((box[:2] + box[2:]) / 2.0)
        text.set_position((x, y))
        near = nearest_boxes(box, point)
        if math.dist(near, point) > 10.0 * unit:
            ends = page.inverted().transform([point, near])
            axes.plot(ends[:, 0], ends[:, 1], color=style.GREY, linewidth=0.5, zorder=2, scalex=False, scaley=False)


def _marker_boxes(points: Floats, whiskers: Floats, radius: float) -> Floats:
    """Return the boxes [3 x points, 4] of the markers at points [.., 2] and of their whiskers, which reach [.., 2]."""
    thin = np.full(len(points), radius / 4.0)
    square = np.full_like(points, radius)
    across, up = np.stack([whiskers[:, 0], thin], axis=1), np.stack([thin, whiskers[:, 1]], axis=1)
    reach = np.stack([square, across, up], axis=1)
    return np.concatenate([points[:, None] - reach, points[:, None] + reach], axis=2).reshape(-1, 4)


# Labels are placed near their point and, where there is room, on no other label, marker or line. Boxes are [..., 4],
# points [..., 2], all lengths in the same unit.


def overlap(first: Floats, other: Floats) -> Floats:
    """Return the area of the intersection of boxes."""
    sides = np.minimum(first[..., 2:], other[..., 2:]) - np.maximum(first[..., :2], other[..., :2])
    areas: Floats = np.maximum(sides, 0.0).prod(axis=-1)
    return areas


def nearest_boxes(box: Floats, point: Floats) -> Floats:
    """Return the places of boxes that are nearest to points."""
    return np.clip(point, box[..., :2], box[..., 2:])


def crosses(start: Floats, stop: Floats, box: Floats) -> NDArray[np.bool_]:
    """Whether the lines from start to stop have a part within boxes."""
    with np.errstate(divide="ignore", invalid="ignore"):  # a line along an axis is always or never beside the box
        low, high = (box[..., :2] - start) / (stop - start), (box[..., 2:] - start) / (stop - start)
    first, last = np.fmin(low, high).max(axis=-1), np.fmax(low, high).min(axis=-1)
    inside: NDArray[np.bool_] = np.maximum(first, 0.0) < np.minimum(last, 1.0)
    return inside


def place_labels(points: Floats, sizes: Floats, obstacles: Floats, bounds: Floats, gap: float) -> Floats:
    """Return a box per label [L, 4], after moving the labels in turn as long as one finds a better place.

    Args:
        points: [L, 2] to be labelled.
        sizes: [L, 2], width and height of the labels.
        obstacles: [O, 4], boxes that labels avoid: markers and whiskers.
        bounds: [4], the available room.
        gap: between a point and its label.
    """
    turns = np.linspace(0.0, 2.0 * np.pi, DIRECTIONS, endpoint=False)
    directions, rings = np.stack([np.cos(turns), np.sin(turns)], axis=1), np.array(RINGS)[:, None]
    offered, fixed = [], []  # places around each point, and the cost of each
    for point, size in zip(points, sizes, strict=True):
        centres = (point + directions * (rings[:, :, None] * gap + size / 2.0)).reshape(-1, 2)
        boxes = np.concatenate([centres - size / 2.0, centres + size / 2.0], axis=1)
        far = ((rings - 1.0) * gap + 0.1 * gap * (1.0 - directions[:, 0])).ravel()  # right of the point costs least
        covered = overlap(boxes[:, None], obstacles)
        foreign = obstacles[(nearest_boxes(obstacles, point) != point).any(axis=1)]  # not the point's own marker
        crossed = crosses(point, nearest_boxes(boxes, point)[:, None], foreign).sum(axis=1)
        outside = size.prod() - overlap(boxes, bounds)
        offered.append(boxes)
        fixed.append(far + _covering_cost(covered, 2.5, 2.0, gap) + 0.7 * gap * crossed + 20.0 * outside / gap)
    chosen = np.full((len(points), 4), np.nan)  # NaN overlaps and crosses nothing
    for _ in range(SWEEPS):
        before = chosen.copy()
        for i, boxes in enumerate(offered):
            others = np.delete(chosen, i, axis=0)
            crossed = crosses(points[i], nearest_boxes(boxes, points[i])[:, None], others).sum(axis=1)
            conflict = _covering_cost(overlap(boxes[:, None], others), 4.0, 4.0, gap) + 4.0 * gap * crossed
            chosen[i] = boxes[(fixed[i] + conflict).argmin()]
        if np.array_equal(chosen, before):
            break
    return chosen


def _covering_cost(areas: Floats, once: float, more: float, gap: float) -> Floats:
    """Return the cost [places] of covering areas [places, things]: a constant per thing, and more for a large area."""
    costs: Floats = np.where(areas > 0.0, once * gap + more * areas / gap, 0.0).sum(axis=1)
    return costs
