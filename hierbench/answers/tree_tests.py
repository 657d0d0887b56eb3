"""Whether mistakes respect a tree: against the same tree with its classes exchanged, and against other trees.

Shapes: N examples, K classes, M mistakes.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import linkage
from scipy.spatial.distance import squareform

from hierbench.hierarchy.label_tree import MATRIX_CLASSES, Hierarchy, IntArray
from hierbench.hierarchy.nodes import Nodes


class TreeTest(NamedTuple):
    """The severity of mistakes on a tree, and on trees with the same shape whose classes are exchanged at random.

    Attributes:
        severity: mean distance of the mistakes, NaN without any.
        expected: mean distance of two distinct classes, which is the mean over all exchanges.
        p: (b + 1) / (m + 1), with b of m random trees on which the mistakes are at most as severe (Phipson & Smyth,
            Statistical Applications in Genetics and Molecular Biology, 2010).
    """

    severity: float
    expected: float
    p: float


def tree_test(
    predicted: IntArray, targets: IntArray, hierarchy: Hierarchy, permutations: int = 999, seed: int = 0
) -> TreeTest:
    """Test whether mistakes are milder on a tree than on the same tree with its classes exchanged.

    Args:
        predicted: [N] classes.
        targets: [N] classes.
        hierarchy: over the K classes.
        permutations: m.
        seed: of these.
    """
    wrong = predicted != targets
    expected = mean_distance(hierarchy)
    if not wrong.any():
        return TreeTest(float("nan"), expected, float("nan"))
    num_classes = hierarchy.num_classes
    pairs, counts = np.unique(targets[wrong] * num_classes + predicted[wrong], return_counts=True)
    first, second = np.divmod(pairs, num_classes)
    matrix = hierarchy.distances if num_classes <= MATRIX_CLASSES else None
    observed = int(hierarchy.distances_between(first, second) @ counts)
    generator = np.random.default_rng(seed)
    milder = 0
    for _ in range(permutations):
        exchanged = generator.permutation(num_classes)
        classes = exchanged[first]
        others = exchanged[second]
        distances = hierarchy.distances_between(classes, others) if matrix is None else matrix[classes, others]
        milder += int(distances @ counts) <= observed
    return TreeTest(observed / int(wrong.sum()), expected, (milder + 1) / (permutations + 1))


def mean_distance(hierarchy: Hierarchy) -> float:
    """Return the mean distance of two distinct classes: a sum over nodes of the pairs that meet there."""
    nodes = Nodes(hierarchy)
    leaves = nodes.num_leaves.double()
    squares = leaves.new_zeros(nodes.num_nodes).index_add(0, nodes.parent[1:], leaves[1:] ** 2)
    pairs = leaves[: nodes.num_inner] ** 2 - squares[: nodes.num_inner]
    num = hierarchy.num_classes * (hierarchy.num_classes - 1)
    return float((pairs * nodes.distance[: nodes.num_inner]).sum()) / num if num else float("nan")


def confusion_tree(predicted: IntArray, targets: IntArray, hierarchy: Hierarchy) -> Hierarchy:
    """Return a binary tree of the same classes, clustered from confusions; it favours the predictions themselves.

    Two classes are at the distance 1 - (c_ij + c_ji) / 2, of the confusion matrix with rows of a sum of 1; clusters are
    joined by average linkage, ties in the order of the classes.

    Args:
        predicted: [N] classes, of examples and of a model other than those to be tested.
        targets: [N] classes.
        hierarchy: with the names of the K classes.
    """
    num_classes = hierarchy.num_classes
    counts = np.bincount(targets * num_classes + predicted, minlength=num_classes**2).reshape(num_classes, num_classes)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    distances = 1.0 - (shares + shares.T) / 2.0
    np.fill_diagonal(distances, 0.0)
    return linkage_tree(linkage(squareform(distances, checks=False), "average"), hierarchy.classes)


def linkage_tree(merges: NDArray[np.float64], classes: tuple[str, ...]) -> Hierarchy:
    """Return the tree of SciPy's linkage [K - 1, 4] of classes."""
    num_classes = len(classes)
    parent = {int(child): num_classes + row for row, (*pair, _, _) in enumerate(merges) for child in pair}
    paths = {}
    for number, name in enumerate(classes):
        path = [name]
        node = parent.get(number)
        while node is not None and node in parent:
            path.append(f"cluster {node - num_classes + 1}")
            node = parent[node]
        paths[name] = tuple(reversed(path))
    return Hierarchy.from_paths(paths)
