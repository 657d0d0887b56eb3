"""Draws docs/pictures/frame.svg: a hierarchy-aware frame beside the simplex ETF, after PCA.

`uv run python docs/pictures/frame.py`
"""

import math
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from hierbench.hierarchy.label_tree import Hierarchy, IntArray
from hierbench.leaderboard.pictures import style
from hierbench.leaderboard.pictures.figure_data import Floats
from hierbench.methods.haframe import HAFrame, hierarchy_aware_frame

Point = tuple[float, float]
Distances = NDArray[np.signedinteger[Any]]  # [K, K]
EDGES: list[dict[str, Any]] = [  # by rank of distance: four classes have three
    {"linestyle": "-", "linewidth": 2.2},
    {"linestyle": (0, (4, 1.5)), "linewidth": 1.3},
    {"linestyle": (0, (1, 1.5)), "linewidth": 0.9},
]
# Four vectors lie in three dimensions around their mean: the picture is exact but for the direction it is seen from.
EXAMPLE = {
    "crow": ("animal", "bird", "crow"),
    "cat": ("animal", "mammal", "cat"),
    "dog": ("animal", "mammal", "dog"),
    "oak": ("plant", "tree", "oak"),
}
LETTERS = 10  # of a name that has room below its leaf
NAME_MARGIN = 0.16  # around the vectors, for their names
CLEARANCE = 0.12  # between a point and a line, of a vector's length
PROJECTION_SEED = 0  # of directions that the data leave open


def leaf_order(distances: Distances) -> IntArray:
    """Return [K] class indices so that the classes of every node are neighbours, from distances [K, K] alone."""
    nodes = [(distances <= top).argmax(axis=1) for top in np.unique(distances)]  # finest first, as lexsort wants it
    return np.lexsort(nodes).astype(np.int64)


def branches(distances: Distances, order: IntArray) -> list[tuple[Point, Point]]:
    """Return the lines of a tree over K leaves as ((x, y), (x, y)), its root at the top.

    x is a place in the order [K], 0 to K - 1; y is the distance of two classes that part at a node, 0 for a leaf. A
    node is above the middle of its children; a node with one child is a point on a line. The distances [K, K] are
    hierarchical: for every t, "at most t apart" splits the classes into nodes.
    """
    nodes = {leaf: (float(place), 0.0) for place, leaf in enumerate(order.tolist())}  # {first class: (x, y)}
    lines: list[tuple[Point, Point]] = []
    for top in np.unique(distances)[1:].tolist():
        first = (distances <= top).argmax(axis=1).tolist()  # the first class of each class's node
        children: dict[int, list[Point]] = {}
        for leaf, point in nodes.items():
            children.setdefault(first[leaf], []).append(point)
        for node, points in children.items():
            if len(points) > 1:
                xs = [x for x, _ in points]
                lines += [((x, y), (x, float(top))) for x, y in points]
                lines.append(((min(xs), float(top)), (max(xs), float(top))))
                points[:] = [((min(xs) + max(xs)) / 2.0, float(top))]
            nodes[node] = points[0]
        nodes = {node: nodes[node] for node in children}
    return lines


def as_polyline(lines: list[tuple[Point, Point]]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return x and y of all lines in one, separated by NaN: a single path in the file instead of thousands."""
    points = np.full((len(lines), 3, 2), np.nan)
    points[:, :2] = lines
    return points[:, :, 0].ravel(), points[:, :, 1].ravel()


def simplex_frame(num_classes: int) -> Floats:
    """Return the ETF [K, K]: unit rows whose cosines are all -1 / (K - 1)."""
    centred = np.eye(num_classes) - 1.0 / num_classes
    return np.asarray(centred * math.sqrt(num_classes / (num_classes - 1.0)), dtype=np.float64)


def project(points: Floats, num_dimensions: int) -> Floats:
    """Return the principal coordinates [K + 1, P], largest variance first, of points [K, D] and, last, of the origin.

    Directions of equal variance can be turned into each other at will, and the result of an eigendecomposition depends
    on rounding. Here such a group is spanned by its projections of fixed random numbers, so that the same points have
    the same picture everywhere.
    """
    mean = points.mean(axis=0)
    centred = points - mean
    values, vectors = np.linalg.eigh(centred @ centred.T)
    values = values[::-1]
    vectors = vectors[:, ::-1]
    random = np.random.default_rng(PROJECTION_SEED).standard_normal((len(points), len(points)))
    start = 0
    while start < min(num_dimensions, len(values)):
        stop = int(np.flatnonzero(values >= values[start] - 1e-6 * values[0])[-1]) + 1
        group = vectors[:, start:stop]
        basis, triangle = np.linalg.qr(group @ (group.T @ random[:, start:stop]))
        vectors[:, start:stop] = basis * np.sign(triangle.diagonal())
        start = stop
    rank = min(num_dimensions, int((values > 1e-12 * values[0]).sum()))
    axes = centred.T @ vectors[:, :rank] / np.sqrt(values[:rank])
    coordinates = np.vstack([vectors[:, :rank] * np.sqrt(values[:rank]), -mean @ axes])
    return np.pad(coordinates, ((0, 0), (0, num_dimensions - rank)))


def best_view(solids: list[Floats]) -> Floats:
    """Return a [3, 2] basis of the plane that separates the points of all solids, each [K, 3], best.

    Of directions on a grid it takes the one with the best `_clarity`. The first axis of the plane is then the one of
    largest variance; the first point lies left of the last but one and above the mean.
    """
    best = np.eye(3)[:, :2]
    highest = -1.0
    for elevation in np.radians(np.arange(-85, 86, 10)):
        for azimuth in np.radians(np.arange(0, 180, 10)):
            right = np.array([-np.sin(azimuth), np.cos(azimuth), 0.0])
            level = np.cos(elevation)
            ahead = np.array([np.cos(azimuth) * level, np.sin(azimuth) * level, np.sin(elevation)])
            basis = np.stack([right, np.cross(ahead, right)], axis=1)
            score = min(_clarity(solid, basis) for solid in solids)
            if score > highest + 1e-9:
                best = basis
                highest = score
    flat = solids[-1] @ best
    _, _, turn = np.linalg.svd(flat - flat.mean(axis=0))
    best = best @ turn.T
    flat = solids[-1] @ best
    flips = [1.0 if flat[0, 0] <= flat[-2, 0] else -1.0, 1.0 if flat[0, 1] >= flat[:, 1].mean() else -1.0]
    return np.asarray(best * flips, dtype=np.float64)


def _clarity(points: Floats, basis: Floats) -> float:
    """Return the smallest ratio of a distance on the plane to that in space, less where a point is almost on a line."""
    first, second = np.triu_indices(len(points), 1)
    flat = points @ basis
    starts = flat[first]
    along = flat[second] - flat[first]
    clarity = np.linalg.norm(along, axis=1) / np.linalg.norm(points[first] - points[second], axis=1)
    lengths = np.maximum((along**2).sum(axis=1), np.finfo(np.float64).tiny)
    offsets = flat[:, None] - starts  # [K, lines, 2], of each point to the lines between two others
    part = np.clip((offsets * along).sum(axis=2) / lengths, 0.0, 1.0)
    misses = np.linalg.norm(offsets - part[:, :, None] * along, axis=2)
    index = np.arange(len(flat))[:, None]
    return float(clarity.min()) * min(float(misses[(index != first) & (index != second)].min()), CLEARANCE)


def project_together(frames: list[Floats]) -> list[Floats]:
    """Return pictures [K + 1, 2] of two frames of K vectors [K, D] from one direction; the last row is the origin.

    Their three principal coordinates are drawn; the first frame is turned, or mirrored, towards the second.
    """
    first, second = (project(points, 3) for points in frames)
    left, _, right = np.linalg.svd(first[:-1].T @ second[:-1])
    first = first @ left @ right
    view = best_view([first, second])
    return [first @ view, second @ view]


def draw() -> Figure:
    """Draw the ETF at the left and the hierarchy-aware frame at the right, their trees below."""
    gamma = float(HAFrame.Params().gamma)
    hierarchy = Hierarchy.from_paths(EXAMPLE)
    frame, _ = hierarchy_aware_frame(hierarchy.distances, gamma, "paper", PROJECTION_SEED, hierarchy.height)
    names = list(hierarchy.classes)
    titles = ["simplex ETF", rf"HAFrame, $\gamma={gamma:g}$"]
    frames = [simplex_frame(len(names)), frame]
    trees: list[Distances] = [(1 - np.eye(len(names))).astype(np.int64), hierarchy.distances]
    pictures = project_together(frames)
    corners = np.vstack([picture - picture[-1] for picture in pictures])  # around the origin: both on one scale
    low = corners.min(axis=0) - NAME_MARGIN
    high = corners.max(axis=0) + NAME_MARGIN
    figure = style.new_figure(style.TWO_COLUMNS, 4.6)
    grid = figure.subplots(2, 2, height_ratios=[2.6, 1.2])
    for column, (points, distances, picture) in enumerate(zip(frames, trees, pictures, strict=True)):
        above, below = grid[:, column]
        above.set_title(titles[column])
        _solid(above, names, distances, points @ points.T, picture)
        above.set_xlim(picture[-1, 0] + low[0], picture[-1, 0] + high[0])
        above.set_ylim(picture[-1, 1] + low[1], picture[-1, 1] + high[1])
        _tree(below, names, distances)
    return figure


def _solid(axes: Axes, names: list[str], distances: Distances, cosines: Floats, picture: Floats) -> None:
    """Draw all classes, the lines to them from the origin, and an edge per pair in a style per distance."""
    classes = picture[:-1]
    origin = picture[-1]
    first, second = np.triu_indices(len(classes), 1)
    edges = dict(zip(sorted(set(distances[first, second].tolist())), EDGES, strict=False))  # {distance: style}
    for place in classes:
        axes.plot(*zip(origin, place, strict=True), color=style.GREY, linewidth=0.5, zorder=1)
    for i, j in zip(first, second, strict=True):
        axes.plot(*classes[[i, j]].T, color=style.BLUE, **edges[int(distances[i, j])], zorder=2)
    axes.plot(*origin, marker="+", color=style.GREY, zorder=3)
    axes.plot(*classes.T, linestyle="none", marker="o", color=style.VERMILION, markersize=6, zorder=4)
    for place, name in zip(classes, names, strict=True):
        away = (place - origin) / max(1e-9, float(np.linalg.norm(place - origin)))
        across, up = (1 + int(part > 0.4) - int(part < -0.4) for part in away)
        ha = ("right", "center", "left")[across]
        va = ("top", "center", "bottom")[up]
        axes.annotate(name, place, 5 * away, textcoords="offset points", ha=ha, va=va, zorder=5)
    axes.set_aspect("equal")
    style.bare(axes)
    labels = [f"distance {kind}: cosine {_number(cosines[distances == kind][0])}" for kind in edges]
    handles = [Line2D([], [], color=style.BLUE, **edge) for edge in edges.values()]
    axes.legend(handles, labels, loc="upper center", bbox_to_anchor=(0.5, -0.02), borderaxespad=0.0)


def _number(value: float) -> str:
    """Return a cosine with two digits, three where two would be zeros."""
    return f"{value:.{2 if abs(value) >= 0.005 else 3}f}".replace("-", "\u2212")


def _tree(axes: Axes, names: list[str], distances: Distances) -> None:
    """Draw the tree of the classes with its root at the top."""
    order = leaf_order(distances)
    axes.plot(*as_polyline(branches(distances, order)), color="black", linewidth=1.0)
    style.bare(axes)
    axes.set_yticks(np.unique(distances).tolist())
    axes.set_ylabel("hierarchical\ndistance")
    axes.set_xlim(-0.5, len(order) - 0.5)
    labels = [names[i] for i in order]
    long = max(map(len, names)) > LETTERS
    turned: dict[str, Any] = {"rotation": 30, "ha": "right", "rotation_mode": "anchor"} if long else {}
    axes.set_xticks(range(len(order)), labels, **turned)
    axes.tick_params(axis="x", length=0)


if __name__ == "__main__":
    with style.house_style():
        style.write_figure(draw(), Path(__file__).with_suffix(".svg"))
