"""Accuracy against mistake severity, one marker per row of the leaderboard, with 95% intervals both ways."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

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
Box = tuple[float, float, float, float]  # left, bottom, right, top
Point = tuple[float, float]
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
    points = [_pair(page.transform((mark.severity, mark.top1))) for mark in marks]
    extents = [text.get_window_extent(renderer) for text in texts]
    obstacles = [box for mark in marks for box in _covered(mark, page, 4.0 * unit)]
    boxes = place_labels(
        points,
        [(extent.width + 2.0 * unit, extent.height + unit) for extent in extents],
        obstacles,
        _box(axes.get_window_extent(renderer).extents),
        gap=6.0 * unit,
    )
    for text, box, point in zip(texts, boxes, points, strict=True):
        text.set_position(_pair(page.inverted().transform(((box[0] + box[2]) / 2.0, (box[1] + box[3]) / 2.0))))
        near = nearest_of(box, point)
        if math.dist(near, point) > 10.0 * unit:
            ends = page.inverted().transform([point, near])
            axes.plot(ends[:, 0], ends[:, 1], color=style.GREY, linewidth=0.5, zorder=2, scalex=False, scaley=False)


def _pair(values: Any) -> Point:
    return float(values[0]), float(values[1])


def _box(extents: Any) -> Box:
    return float(extents[0]), float(extents[1]), float(extents[2]), float(extents[3])


def _covered(mark: Mark, page: Transform, radius: float) -> list[Box]:
    """Return the boxes on the page of a marker and of its two whiskers."""
    x, y = _pair(page.transform((mark.severity, mark.top1)))
    dx = _pair(page.transform((mark.severity + (mark.severity_ci95 or 0.0), mark.top1)))[0] - x
    dy = _pair(page.transform((mark.severity, mark.top1 + (mark.top1_ci95 or 0.0))))[1] - y
    thin = radius / 4.0
    return [
        (x - radius, y - radius, x + radius, y + radius),
        (x - dx, y - thin, x + dx, y + thin),
        (x - thin, y - dy, x + thin, y + dy),
    ]


# Labels: near their own point, and on no other label, marker or line where there is room.


def overlap(one: Box, other: Box) -> float:
    """Return the area that two boxes share."""
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    return max(0.0, width) * max(0.0, height)


def nearest_of(box: Box, point: Point) -> Point:
    """Return the place of a box that is nearest to a point."""
    return min(max(point[0], box[0]), box[2]), min(max(point[1], box[1]), box[3])


def crosses(start: Point, stop: Point, box: Box) -> bool:
    """Whether the line from start to stop has a part within a box."""
    first, last = 0.0, 1.0  # the part of the line that is within the box, along each axis in turn
    for axis in (0, 1):
        along = stop[axis] - start[axis]
        low, high = box[axis] - start[axis], box[axis + 2] - start[axis]
        if along == 0.0:
            if low > 0.0 or high < 0.0:
                return False
            continue
        ends = sorted((low / along, high / along))
        first, last = max(first, ends[0]), min(last, ends[1])
    return first < last


def candidates(point: Point, size: Point, gap: float) -> list[tuple[float, Box]]:
    """Return (cost, box) of the places around a point: farther costs more, and right of it costs least."""
    places = []
    for ring in RINGS:
        for step in range(DIRECTIONS):
            angle = 2.0 * math.pi * step / DIRECTIONS
            x = point[0] + math.cos(angle) * (ring * gap + size[0] / 2.0)
            y = point[1] + math.sin(angle) * (ring * gap + size[1] / 2.0)
            box = (x - size[0] / 2.0, y - size[1] / 2.0, x + size[0] / 2.0, y + size[1] / 2.0)
            places.append(((ring - 1.0) * gap + 0.1 * gap * (1.0 - math.cos(angle)), box))
    return places


def place_labels(
    points: Sequence[Point],
    sizes: Sequence[Point],
    obstacles: Sequence[Box],
    bounds: Box,
    gap: float,
) -> list[Box]:
    """Return a box per label.

    Labels are placed one after the other, then moved in turn as long as one finds a better place. All lengths are in
    the same unit.

    Args:
        points: what is labelled.
        sizes: width and height of the labels.
        obstacles: boxes that labels keep off: markers, whiskers.
        bounds: the room that there is.
        gap: between a point and its label.
    """
    offered = [candidates(point, size, gap) for point, size in zip(points, sizes, strict=True)]
    fixed = [
        [cost + _penalty(box, point, obstacles, bounds, gap) for cost, box in places]
        for point, places in zip(points, offered, strict=True)
    ]
    chosen: list[Box | None] = [None] * len(points)
    for _ in range(SWEEPS):
        before = list(chosen)
        for i, places in enumerate(offered):
            others = [box for j, box in enumerate(chosen) if j != i and box is not None]
            costs = [
                cost + sum(_conflict(box, points[i], other, gap) for other in others)
                for cost, (_, box) in zip(fixed[i], places, strict=True)
            ]
            chosen[i] = places[costs.index(min(costs))][1]
        if chosen == before:
            break
    return [box for box in chosen if box is not None]


def _conflict(box: Box, point: Point, other: Box, gap: float) -> float:
    """Return what it costs that a label, or the line to it, lies on another label."""
    share = overlap(box, other)
    covered = 4.0 * gap + 4.0 * share / gap if share > 0.0 else 0.0
    return covered + (4.0 * gap if crosses(point, nearest_of(box, point), other) else 0.0)


def _penalty(box: Box, point: Point, obstacles: Sequence[Box], bounds: Box, gap: float) -> float:
    """Return what a place costs by itself: what the label and the line to it cover, and what is out of bounds."""
    area = (box[2] - box[0]) * (box[3] - box[1])
    outside = area - overlap(box, bounds)
    covered = [share for other in obstacles if (share := overlap(box, other)) > 0.0]
    near = nearest_of(box, point)
    foreign = [other for other in obstacles if nearest_of(other, point) != point]  # not the point's own marker
    crossed = sum(crosses(point, near, other) for other in foreign)
    return sum(2.5 * gap + 2.0 * share / gap for share in covered) + 0.7 * gap * crossed + 20.0 * outside / gap
