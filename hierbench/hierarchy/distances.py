"""The hierarchical distance of every pair of classes, in a few bytes per pair: [K, K] int16 and its JSON text.

Shapes: K classes, L levels, C nodes of a level.
"""

import json
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

# A height is at most 256, so that squares of up to 181 and the products of smaller trees do not overflow either.
DISTANCE = np.int16
DISTANCE_COLUMNS = 512  # at a time: intermediate arrays stay small beside the matrix


def distance_matrix(
    height: int,
    targets: NDArray[np.int64],
    node_distances: Sequence[NDArray[np.int64]],
) -> NDArray[np.int16]:
    """Return [K, K] int16: for two classes the value of their lowest common ancestor, `height` for the root.

    An inner node's row is the distance of each class from the classes below the node. A child's row is its parent's but
    for the classes below the child, whose entry is the child's own value: O(K^2 + N K) operations for N inner nodes.

    Args:
        height: the value of the root.
        targets: [K, L] the node of each class at each level.
        node_distances: L arrays [C], the value of each node, 0 for a leaf.
    """
    num_classes = len(targets)
    levels = []
    above = np.zeros(num_classes, dtype=np.int64)  # row of the inner node above each class, -1 below its leaf
    for nodes, value in zip(targets.T, node_distances, strict=True):
        inner = value[nodes] > 0
        leaves = np.flatnonzero((above >= 0) & ~inner)
        row_of = np.cumsum(value > 0) - 1  # of each inner node
        row_above = np.empty((value > 0).sum(), dtype=np.int64)
        row_above[row_of[nodes[inner]]] = above[inner]
        levels.append((leaves, above[leaves], row_above, np.where(inner, row_of[nodes], -1), value[nodes]))
        above = levels[-1][3]
    distances = np.empty((num_classes, num_classes), dtype=DISTANCE)
    for start in range(0, num_classes, DISTANCE_COLUMNS):
        some = slice(start, start + DISTANCE_COLUMNS)
        rows = np.full((1, len(targets[some])), height, dtype=DISTANCE)
        for leaves, leaf_above, row_above, row, value in levels:
            distances[leaves, some] = rows[leaf_above]
            rows = rows[row_above]
            below = np.flatnonzero(row[some] >= 0)
            rows[row[some][below], below] = value[some][below]
    np.fill_diagonal(distances, 0)
    return distances


def json_parts(content: Sequence[object], distances: NDArray[np.int16]) -> Iterator[bytes]:
    """Yield the compact JSON text of [*content, distances] in parts of a row, without a list of all the numbers."""
    yield json.dumps(content, separators=(",", ":"), ensure_ascii=True)[:-1].encode() + b",["
    largest = int(distances.max())
    size = 2 if largest < 10 else 4  # bytes of a number and its comma, filled with zeros
    texts = np.array([f"{value}," for value in range(largest + 1)], dtype=f"S{size}").view(f"u{size}")
    before = b"["
    for row in distances:
        text = texts[row].tobytes()
        yield before + (text if size == 2 else text.translate(None, b"\0"))[:-1]
        before = b"],["
    yield b"]]]"
