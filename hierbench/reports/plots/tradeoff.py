"""Accuracy against mistake severity, one marker per row of the leaderboard, with 95% intervals both ways."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hierbench.leaderboard.render import ordered_rows
from hierbench.leaderboard.statistics import TOLERANCE, Row, printed
from hierbench.reports.plots import style
from hierbench.reports.plots.source import Request, board_of, heading, remarks_on
from hierbench.utils.errors import UserError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.transforms import Transform

ROUNDING = 0.005  # half of the last printed digit
Floats = NDArray[np.float64]
RINGS = (1.0, 1.5, 2.1, 2.8, 3.6, 4.6, 5.8)  # gaps between a point and its label that are tried
DIRECTIONS = 24
SWEEPS = 6


class Mark(NamedTuple):
    """A row that has both numbers; half-widths are None below two runs."""

    row: Row
    severity: float
    severity_ci95: float | None
    top1: float
    top1_ci95: float | None

    @property
    def label(self) -> str:
        """What stands beside the marker."""
        return f"{style.plain(self.row.title)}, {self.row.type}"


def marks_of(rows: Sequence[Row]) -> list[Mark]:
    """Return the rows with an accuracy and a severity; a model without mistakes has no severity."""
    marks = []
    for row in rows:
        severity, top1 = row.metrics["mistake_severity"], row.metrics["top1"]
        if severity.mean is not None and top1.mean is not None:
            marks.append(Mark(row, severity.mean, severity.ci95, top1.mean, top1.ci95))
    return marks


def competitive_band(marks: Sequence[Mark]) -> tuple[float, float]:
    """Return the severities between which a row is competitive, see `hierbench.leaderboard.statistics.highlight`.

    The rule compares printed numbers, so the band ends where the next digit would be printed.
    """
    smallest = min(mark.severity for mark in marks)
    return smallest, float(min(printed(mark.severity, 2) for mark in marks) + TOLERANCE) + ROUNDING


def draw(request: Request) -> style.Drawing:
    """Draw the rows of a leaderboard; the better corner is the upper left one."""
    board = board_of(request)
    marks = marks_of(ordered_rows(board))
    if not marks:
        raise UserError(f"no row of {request.dataset} has a mistake severity to draw")
    looks = style.looks_of([mark.row for mark in marks])
    figure = style.new_figure(style.DOUBLE, 4.0)
    axes = figure.subplots()
    low, high = competitive_band(marks)
    axes.axvspan(low, high, color=style.LIGHT, alpha=0.6, linewidth=0, zorder=0)
    for mark in marks:
        look = looks[style.key_of(mark.row)]
        axes.errorbar(
            mark.severity,
            mark.top1,
            xerr=mark.severity_ci95,
            yerr=mark.top1_ci95,
            color=look.colour,
            marker=look.marker,
            markersize=5.5,
            markerfacecolor=look.colour if mark.row.type == "type-II" else "none",
            elinewidth=0.8,
            capsize=1.5,
            zorder=3,
        )
    axes.margins(0.08)
    axes.set_title(heading(board), loc="left")
    style.note(
        axes,
        "band: competitive, severity at most 0.05 above the smallest\n"
        "whiskers: 95% intervals; markers: open type-I, filled type-II",
    )
    axes.set_xlabel("mistake severity (mean hierarchical distance of the mistakes; smaller is better)")
    axes.set_ylabel("top-1 accuracy (%; larger is better)")
    _annotate(figure, axes, marks)
    drawn = {id(mark.row) for mark in marks}
    absent = [f"{row.title}, {row.type}" for row in board.rows if row.n and id(row) not in drawn]
    remarks = [f"not shown: {'; '.join(absent)}: no mistakes, so no severity"] if absent else []
    return style.Drawing(figure, remarks_on(board) + remarks)


def _annotate(figure: Figure, axes: Axes, marks: Sequence[Mark]) -> None:
    """Write each row's name beside its marker, with a thin line to it where it had to move away."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    renderer: Any = FigureCanvasAgg(figure).get_renderer()  # type: ignore[no-untyped-call]
    texts = [axes.text(0, 0, mark.label, fontsize=style.SMALL, ha="center", va="center") for mark in marks]
    for text in texts:
        text.set_in_layout(False)  # they have no place yet
    figure.draw_without_rendering()  # settles the layout, so that data have a place on the page
    unit = figure.dpi / 72.0  # pixels per point
    page = axes.transData
    points = page.transform([(mark.severity, mark.top1) for mark in marks])
    extents = [text.get_window_extent(renderer) for text in texts]
    boxes = place_labels(
        points,
        np.array([(extent.width + 2.0 * unit, extent.height + unit) for extent in extents]),
        np.concatenate([_covered(mark, page, 4.0 * unit) for mark in marks]),
        np.array(axes.get_window_extent(renderer).extents),
        gap=6.0 * unit,
    )
    for text, box, point in zip(texts, boxes, points, strict=True):
        x, y = page.inverted().transform((box[:2] + box[2:]) / 2.0)
        text.set_position((x, y))
        near = nearest_of(box, point)
        if math.dist(near, point) > 10.0 * unit:
            ends = page.inverted().transform([point, near])
            axes.plot(ends[:, 0], ends[:, 1], color=style.GREY, linewidth=0.5, zorder=2, scalex=False, scaley=False)


def _covered(mark: Mark, page: Transform, radius: float) -> Floats:
    """Return the boxes on the page [3, 4] of a marker and of its two whiskers."""
    place = page.transform((mark.severity, mark.top1))
    ends = page.transform((mark.severity + (mark.severity_ci95 or 0.0), mark.top1 + (mark.top1_ci95 or 0.0)))
    (dx, dy), thin = ends - place, radius / 4.0
    reach = np.array([(radius, radius), (dx, thin), (thin, dy)])
    return np.concatenate([place - reach, place + reach], axis=1)


# Labels: near their own point, and on no other label, marker or line where there is room. Boxes are [..., 4], points
# [..., 2], all lengths in the same unit.


def overlap(one: Floats, other: Floats) -> Floats:
    """Return the area that boxes share."""
    sides = np.minimum(one[..., 2:], other[..., 2:]) - np.maximum(one[..., :2], other[..., :2])
    area: Floats = np.maximum(sides, 0.0).prod(axis=-1)
    return area


def nearest_of(box: Floats, point: Floats) -> Floats:
    """Return the places of boxes that are nearest to points."""
    return np.clip(point, box[..., :2], box[..., 2:])


def crosses(start: Floats, stop: Floats, box: Floats) -> NDArray[np.bool_]:
    """Whether the lines from start to stop have a part within boxes."""
    with np.errstate(divide="ignore", invalid="ignore"):  # a line along an axis is for ever or never beside the box
        low, high = (box[..., :2] - start) / (stop - start), (box[..., 2:] - start) / (stop - start)
    first, last = np.fmin(low, high).max(axis=-1), np.fmax(low, high).min(axis=-1)
    within: NDArray[np.bool_] = np.maximum(first, 0.0) < np.minimum(last, 1.0)
    return within


def place_labels(points: Floats, sizes: Floats, obstacles: Floats, bounds: Floats, gap: float) -> Floats:
    """Return a box per label [L, 4], after moving the labels in turn as long as one finds a better place.

    Args:
        points: [L, 2], what is labelled.
        sizes: [L, 2], width and height of the labels.
        obstacles: [O, 4], boxes that labels keep off: markers, whiskers.
        bounds: [4], the room that there is.
        gap: between a point and its label.
    """
    turns = np.linspace(0.0, 2.0 * np.pi, DIRECTIONS, endpoint=False)
    directions, rings = np.stack([np.cos(turns), np.sin(turns)], axis=1), np.array(RINGS)[:, None]
    offered, fixed = [], []  # places around each point, and what each of them costs by itself
    for point, size in zip(points, sizes, strict=True):
        centres = (point + directions * (rings[:, :, None] * gap + size / 2.0)).reshape(-1, 2)
        boxes = np.concatenate([centres - size / 2.0, centres + size / 2.0], axis=1)
        far = ((rings - 1.0) * gap + 0.1 * gap * (1.0 - directions[:, 0])).ravel()  # right of the point costs least
        covered = overlap(boxes[:, None], obstacles)
        foreign = obstacles[(nearest_of(obstacles, point) != point).any(axis=1)]  # not the point's own marker
        crossed = crosses(point, nearest_of(boxes, point)[:, None], foreign).sum(axis=1)
        outside = size.prod() - overlap(boxes, bounds)
        offered.append(boxes)
        fixed.append(far + _covering(covered, 2.5, 2.0, gap) + 0.7 * gap * crossed + 20.0 * outside / gap)
    chosen = np.full((len(points), 4), np.nan)  # NaN overlaps and crosses nothing
    for _ in range(SWEEPS):
        before = chosen.copy()
        for i, boxes in enumerate(offered):
            others = np.delete(chosen, i, axis=0)
            crossed = crosses(points[i], nearest_of(boxes, points[i])[:, None], others).sum(axis=1)
            conflict = _covering(overlap(boxes[:, None], others), 4.0, 4.0, gap) + 4.0 * gap * crossed
            chosen[i] = boxes[(fixed[i] + conflict).argmin()]
        if np.array_equal(chosen, before):
            break
    return chosen


def _covering(areas: Floats, once: float, more: float, gap: float) -> Floats:
    """Return what it costs to cover areas [places, things]: something for each thing, and more for a large area."""
    cost: Floats = np.where(areas > 0.0, once * gap + more * areas / gap, 0.0).sum(axis=1)
    return cost
