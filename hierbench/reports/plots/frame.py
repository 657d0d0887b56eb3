"""A hierarchy-aware frame beside the simplex equiangular tight frame (ETF), after PCA, with the trees they embed."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hierbench.config.recipe import load_recipe
from hierbench.hierarchy.tree import Hierarchy
from hierbench.reports.plots import style
from hierbench.reports.plots.source import Request, tree_of
from hierbench.reports.plots.tree import as_polyline, branches, leaf_order

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Matrix = NDArray[np.float64]
IntArray = NDArray[np.int64]


class Edge(NamedTuple):
    """How a pair of classes is joined."""

    dashes: Any
    width: float


EDGES = [Edge("-", 2.2), Edge((0, (4, 1.5)), 1.3), Edge((0, (1, 1.5)), 0.9)]  # by rank of distance: four have three
# Four vectors lie in three dimensions around their mean: the picture is exact but for the direction it is seen from.
EXAMPLE = {
    "crow": ("animal", "bird", "crow"),
    "cat": ("animal", "mammal", "cat"),
    "dog": ("animal", "mammal", "dog"),
    "oak": ("plant", "tree", "oak"),
}
LETTERS = 10  # of a name that has room below its leaf
MARGIN = 0.16  # around the vectors, for their names
CLEARANCE = 0.12  # between a point and a line, of a vector's length
SEED = 0  # of directions that the data leave open


class Projection(NamedTuple):
    """Points after PCA.

    Attributes:
        coordinates: [K, P], largest variance first.
        origin: [P], where the origin of the frame comes to lie.
    """

    coordinates: Matrix
    origin: NDArray[np.float64]


def simplex_frame(num_classes: int) -> Matrix:
    """Return the ETF [K, K]: unit rows whose cosines are all -1 / (K - 1)."""
    centred = np.eye(num_classes) - 1.0 / num_classes
    return np.asarray(centred * math.sqrt(num_classes / (num_classes - 1.0)), dtype=np.float64)


def project(points: Matrix, num_dimensions: int) -> Projection:
    """Return the principal coordinates of points [K, D].

    Directions of equal variance can be turned into each other at will, and an eigendecomposition returns what
    rounding makes of them. Here such a group is spanned by what it holds of fixed random numbers, so that the same
    points have the same picture everywhere.
    """
    mean = points.mean(axis=0)
    centred = points - mean
    values, vectors = np.linalg.eigh(centred @ centred.T)
    values, vectors = np.maximum(values[::-1], 0.0), vectors[:, ::-1]
    random = np.random.default_rng(SEED).standard_normal((len(points), len(points)))
    start = 0
    while start < min(num_dimensions, len(values)):
        equal = np.flatnonzero(values >= values[start] - 1e-6 * values[0])
        stop = int(equal[-1]) + 1
        group = vectors[:, start:stop]
        held = group @ (group.T @ random[:, start:stop])
        vectors[:, start:stop] = np.linalg.qr(held)[0] * np.sign(np.linalg.qr(held)[1].diagonal())
        start = stop
    values, vectors = values[:num_dimensions], vectors[:, :num_dimensions]
    flat = values <= 1e-12 * values[0]  # fewer points than dimensions: what is left is zero
    axes = np.where(flat, 0.0, centred.T @ vectors / np.sqrt(np.where(flat, 1.0, values)))
    missing = num_dimensions - len(values)
    coordinates = np.pad(vectors * np.sqrt(np.where(flat, 0.0, values)), ((0, 0), (0, missing)))
    return Projection(coordinates, np.pad(-mean @ axes, (0, missing)))


def nearest_miss(points: Matrix) -> float:
    """Return the smallest distance, on the plane, of a point [K, 2] to a line between two others (K > 2)."""
    first, second = np.triu_indices(len(points), 1)
    starts, along = points[first], points[second] - points[first]
    lengths = np.maximum((along**2).sum(axis=1), np.finfo(np.float64).tiny)
    offsets = points[:, None] - starts  # [K, lines, 2]
    part = np.clip((offsets * along).sum(axis=2) / lengths, 0.0, 1.0)
    misses = np.linalg.norm(offsets - part[:, :, None] * along, axis=2)
    own = np.arange(len(points))[:, None]
    return float(misses[(own != first) & (own != second)].min())


def best_view(solids: list[Matrix]) -> Matrix:
    """Return a [3, 2] basis of the plane on which the points of all solids, each [K, 3], are told apart best.

    Directions on a grid are tried, for the one that shortens no distance much while points keep off the lines between
    others. The first axis of the plane is then the one of largest variance; the first point lies left of the last but
    one and above the mean.
    """
    best, highest = np.eye(3)[:, :2], -1.0
    for elevation in np.radians(np.arange(-85, 86, 10)):
        for azimuth in np.radians(np.arange(0, 180, 10)):
            right = np.array([-np.sin(azimuth), np.cos(azimuth), 0.0])
            ahead = np.array(
                [np.cos(azimuth) * np.cos(elevation), np.sin(azimuth) * np.cos(elevation), np.sin(elevation)]
            )
            basis = np.stack([right, np.cross(ahead, right)], axis=1)
            score = min(_clarity(solid, basis) for solid in solids)
            if score > highest + 1e-9:
                best, highest = basis, score
    flat = solids[-1] @ best
    _, _, turn = np.linalg.svd(flat - flat.mean(axis=0))
    best = best @ turn.T
    flat = solids[-1] @ best
    flips = [1.0 if flat[0, 0] <= flat[-2, 0] else -1.0, 1.0 if flat[0, 1] >= flat[:, 1].mean() else -1.0]
    return np.asarray(best * flips, dtype=np.float64)


def _clarity(points: Matrix, basis: Matrix) -> float:
    """Return the smallest part of a distance that is left on a plane, less where a point is almost on a line."""
    first, second = np.triu_indices(len(points), 1)
    flat = points @ basis
    left = np.linalg.norm(flat[first] - flat[second], axis=1) / np.linalg.norm(points[first] - points[second], axis=1)
    return float(left.min()) * min(nearest_miss(flat), CLEARANCE)


def seen_together(frames: list[Matrix]) -> list[Matrix]:
    """Return pictures [K + 1, 2] of two frames of K vectors [K, D] from one direction; the last row is the origin.

    Their three principal coordinates are drawn; the first frame is turned, or mirrored, towards the second.
    """
    sides = [project(points, 3) for points in frames]
    first, second = (np.vstack([found.coordinates, found.origin]) for found in sides)
    left, _, right = np.linalg.svd(sides[0].coordinates.T @ sides[1].coordinates)
    first = first @ left @ right
    view = best_view([first, second])
    return [first @ view, second @ view]


def sample_classes(distances: IntArray) -> list[int]:
    """Return up to four classes [K, K] distances apart: one, its nearest, one half-way up its distances, a farthest.

    The first is a class with the most different distances to others; equals go to the lower index.
    """
    start = int(np.argmax([len(np.unique(row)) for row in distances]))
    apart = np.unique(distances[start])[1:]
    picked = [start]
    for distance in (apart[0], apart[len(apart) // 2], apart[-1]):
        missed = np.abs(distances[start] - distance)
        picked += sorted(set(range(len(distances))) - set(picked), key=lambda i: (missed[i], i))[:1]
    return picked


def draw(request: Request) -> style.Drawing:
    """Draw the ETF at the left and the hierarchy-aware frame at the right, their trees below."""
    from hierbench.methods.haframe import HAFrame, hierarchy_aware_frame

    mode = request.protocol or "paper"
    gamma = float(HAFrame.Params().gamma)
    hierarchy = Hierarchy.from_paths(EXAMPLE)
    if request.dataset:
        hierarchy = tree_of(request.dataset, request.data_dir).hierarchy
        recipe = load_recipe(request.dataset, protocol=mode)
        gamma = float(recipe.params_of("haframe").get("gamma", gamma))
    whole, _ = hierarchy_aware_frame(hierarchy.distances, gamma, mode, SEED, hierarchy.height)
    picked = sample_classes(hierarchy.distances)
    names = [style.readable(hierarchy.classes[i]) for i in picked]
    part = f": {len(picked)} of {hierarchy.num_classes} classes" if len(picked) < hierarchy.num_classes else ""
    frames = {
        "simplex ETF": (simplex_frame(hierarchy.num_classes)[picked], (1 - np.eye(len(picked))).astype(np.int64)),
        rf"HAFrame, $\gamma={gamma:g}$": (whole[picked], hierarchy.distances[np.ix_(picked, picked)]),
    }
    pictures = seen_together([points for points, _ in frames.values()])
    corners = np.vstack([picture - picture[-1] for picture in pictures])  # around the origin: both on one scale
    low, high = corners.min(axis=0) - MARGIN, corners.max(axis=0) + MARGIN
    figure = style.new_figure(style.DOUBLE, 4.6)
    grid = figure.subplots(2, 2, height_ratios=[2.6, 1.2])
    for (title, (points, distances)), picture, above, below in zip(frames.items(), pictures, *grid, strict=True):
        above.set_title(title + part)
        _solid(above, names, distances, points @ points.T, picture)
        above.set_xlim(picture[-1, 0] + low[0], picture[-1, 0] + high[0])
        above.set_ylim(picture[-1, 1] + low[1], picture[-1, 1] + high[1])
        _tree(below, names, distances)
    return style.Drawing(figure, [])


def _solid(axes: Axes, names: list[str], distances: IntArray, cosines: Matrix, picture: Matrix) -> None:
    """Draw all classes, the lines to them from the origin, and an edge per pair in a style per distance."""
    from matplotlib.lines import Line2D

    classes, origin = picture[:-1], picture[-1]
    kinds = sorted({int(value) for value in distances.ravel() if value})
    styles = dict(zip(kinds, EDGES, strict=False))
    for place in classes:
        axes.plot(*zip(origin, place, strict=True), color=style.GREY, linewidth=0.5, zorder=1)
    for i, j in zip(*np.triu_indices(len(classes), 1), strict=True):
        edge = styles[int(distances[i, j])]
        axes.plot(*classes[[i, j]].T, color=style.BLUE, linestyle=edge.dashes, linewidth=edge.width, zorder=2)
    axes.plot(*origin, marker="+", color=style.GREY, zorder=3)
    axes.plot(*classes.T, linestyle="none", marker="o", color=style.VERMILION, markersize=6, zorder=4)
    for place, name in zip(classes, names, strict=True):
        away = (place - origin) / max(1e-9, float(np.linalg.norm(place - origin)))
        axes.annotate(
            name,
            place,
            5 * away,
            textcoords="offset points",
            ha=_side(away[0], ("right", "center", "left")),
            va=_side(away[1], ("top", "center", "bottom")),
            zorder=5,
        )
    axes.set_aspect("equal")
    style.bare(axes)
    pairs = [tuple(np.argwhere(distances == kind)[0]) for kind in kinds]
    labels = [f"distance {kind}: cosine {_number(cosines[pair])}" for kind, pair in zip(kinds, pairs, strict=True)]
    handles = [Line2D([], [], color=style.BLUE, ls=styles[kind].dashes, lw=styles[kind].width) for kind in kinds]
    axes.legend(handles, labels, loc="upper center", bbox_to_anchor=(0.5, -0.02), borderaxespad=0.0)


def _number(value: float) -> str:
    """Return a cosine with two digits, three where two would say nothing."""
    return f"{value:.{2 if abs(value) >= 0.005 else 3}f}".replace("-", "\u2212")


def _tree(axes: Axes, names: list[str], distances: IntArray) -> None:
    """Draw the tree of the classes with its root at the top."""
    order = leaf_order(distances)
    axes.plot(*as_polyline(branches(distances, order)), color="black", linewidth=1.0)
    style.bare(axes)
    axes.set_yticks(np.unique(distances).tolist())
    axes.set_ylabel("hierarchical\ndistance")
    axes.set_xlim(-0.5, len(order) - 0.5)
    turn = 0 if max(map(len, names)) <= LETTERS else 30
    axes.set_xticks(range(len(order)), [names[i] for i in order])
    axes.tick_params(axis="x", length=0, labelrotation=turn)
    if turn:
        for label in axes.get_xticklabels():
            label.set_horizontalalignment("right")
            label.set_rotation_mode("anchor")


def _side(direction: float, names: tuple[str, str, str]) -> str:
    """Return how text beside a point is aligned that lies in a direction from -1 to 1."""
    return names[0] if direction < -0.4 else names[2] if direction > 0.4 else names[1]
