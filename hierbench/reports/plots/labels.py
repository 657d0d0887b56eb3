"""Labels beside points: near their own point, and on no other label, marker or line where there is room."""

from __future__ import annotations

import math
from collections.abc import Sequence

Box = tuple[float, float, float, float]  # left, bottom, right, top
RINGS = (1.0, 1.5, 2.1, 2.8, 3.6, 4.6, 5.8)  # gaps between point and label that are tried
DIRECTIONS = 24
SWEEPS = 6


def overlap(one: Box, other: Box) -> float:
    """Return the area that two boxes share."""
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    return max(0.0, width) * max(0.0, height)


def nearest_of(box: Box, point: tuple[float, float]) -> tuple[float, float]:
    """Return the place of a box that is nearest to a point."""
    return min(max(point[0], box[0]), box[2]), min(max(point[1], box[1]), box[3])


def crosses(start: tuple[float, float], stop: tuple[float, float], box: Box) -> bool:
    """Whether the line from start to stop has a part within a box."""
    first, last = 0.0, 1.0
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


def candidates(point: tuple[float, float], size: tuple[float, float], gap: float) -> list[tuple[float, Box]]:
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
    points: Sequence[tuple[float, float]],
    sizes: Sequence[tuple[float, float]],
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


def _conflict(box: Box, point: tuple[float, float], other: Box, gap: float) -> float:
    """Return what it costs that a label, or the line to it, lies on another label."""
    share = overlap(box, other)
    covered = 4.0 * gap + 4.0 * share / gap if share > 0.0 else 0.0
    return covered + (4.0 * gap if crosses(point, nearest_of(box, point), other) else 0.0)


def _penalty(box: Box, point: tuple[float, float], obstacles: Sequence[Box], bounds: Box, gap: float) -> float:
    """Return what a place costs by itself: what the label and the line to it cover, and what is out of bounds."""
    area = (box[2] - box[0]) * (box[3] - box[1])
    outside = area - overlap(box, bounds)
    covered = [share for other in obstacles if (share := overlap(box, other)) > 0.0]
    near = nearest_of(box, point)
    foreign = [other for other in obstacles if nearest_of(other, point) != point]  # not the point's own marker
    crossed = sum(crosses(point, near, other) for other in foreign)
    return sum(2.5 * gap + 2.0 * share / gap for share in covered) + 0.7 * gap * crossed + 20.0 * outside / gap
