"""Trees as lines: an order of the leaves in which no branch crosses another, blocks of classes, and the branches."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hierbench.hierarchy.label_tree import Hierarchy, IntArray

Point = tuple[float, float]
Distances = NDArray[np.signedinteger[Any]]  # [K, K]


def class_order(hierarchy: Hierarchy) -> IntArray:
    """Return [K] class indices, sorted by node from the coarsest level down: the classes of a node are neighbours."""
    return np.lexsort(hierarchy.level_targets.T[::-1]).astype(np.int64)


def block_bounds(hierarchy: Hierarchy, order: IntArray, level: int) -> IntArray:
    """Return [nodes + 1] int: where the blocks of a level's nodes begin in the order, and K at the end."""
    node = hierarchy.level_targets[order, level]
    inner = np.flatnonzero(node[1:] != node[:-1]) + 1
    return np.concatenate([[0], inner, [len(order)]]).astype(np.int64)


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
