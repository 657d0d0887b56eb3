"""Predictions per level of the tree: accuracy by level, and whether the levels agree.

Shapes: N examples, K classes, L levels, M nodes of all levels together. A level prediction [N, L] is a node's index
within each level, coarsest first, as in `Hierarchy.level_targets`; a leaf above the deepest level is repeated below it.
"""

from functools import lru_cache

import torch
from torch import Tensor

from hierbench.hierarchy.nodes import Nodes
from hierbench.hierarchy.tree import Hierarchy
from hierbench.metrics.ranking import known_targets

NUMBERS_AT_A_TIME = 2**22  # of float64, 32 MiB; bounds every table over examples and classes or nodes


@lru_cache(maxsize=8)
def nodes_on(hierarchy: Hierarchy, device: torch.device) -> Nodes:
    """Return the tree's nodes on a device."""
    return Nodes(hierarchy).to(device)


def rows_at_a_time(width: int) -> int:
    """Return how many examples to take at a time where a table has `width` numbers for each."""
    return max(1, NUMBERS_AT_A_TIME // max(1, width))


def check_probabilities(probabilities: Tensor, num_classes: int) -> None:
    """Raise a ValueError unless there are [N, K] numbers between 0 and 1, up to rounding."""
    if probabilities.ndim != 2 or probabilities.shape[1] != num_classes or not probabilities.is_floating_point():
        raise ValueError(f"probabilities must be real numbers [N, {num_classes}], got {tuple(probabilities.shape)}")
    if len(probabilities):
        low, high = (float(value) for value in probabilities.aminmax())  # host-device sync
        if not (low >= 0.0 and high <= 1.0 + 1e-3):
            raise ValueError("probabilities must be between 0 and 1")


def lifted_predictions(probabilities: Tensor, hierarchy: Hierarchy) -> Tensor:
    """Return the node of largest probability per level, the sum over the classes below it; ties to the lower index.

    The nodes of different levels need not lie on one path: TICE of these predictions is not 0.

    Args:
        probabilities: [N, K].
        hierarchy: over the K classes.

    Returns:
        [N, L] int64.
    """
    check_probabilities(probabilities, hierarchy.num_classes)
    nodes = nodes_on(hierarchy, probabilities.device)
    chosen = probabilities.new_empty((len(probabilities), hierarchy.num_levels), dtype=torch.int64)
    rows = rows_at_a_time(len(nodes.path_leaf) + len(nodes.levels))
    for start in range(0, len(probabilities), rows):
        by_node = nodes.leaf_sums(probabilities[start : start + rows].double())[:, nodes.levels]
        for level, part in enumerate(by_node.split(hierarchy.level_sizes, dim=1)):
            chosen[start : start + rows, level] = part.argmax(dim=1)  # the first of the largest
    return chosen


def levels_of(classes: Tensor, hierarchy: Hierarchy) -> Tensor:
    """Return the nodes [N, L] of the paths of classes [N]; their TICE is 0."""
    return torch.tensor(hierarchy.level_targets, device=classes.device)[classes]


def level_counts(predictions: Tensor, targets: Tensor, hierarchy: Hierarchy) -> Tensor:
    """Return the sums from which level accuracies, FPA and TICE follow; those of batches can be added up.

    Args:
        predictions: [N, L].
        targets: [N] class indices.
        hierarchy: over the K classes.

    Returns:
        [3 + L] int64: examples, those right at every level, those whose nodes are not on one path, those right at each
        level.

    Raises:
        ValueError: no examples, wrong shapes, or an index that is not a class or not a node of its level.
    """
    wanted = (len(targets), hierarchy.num_levels)
    if tuple(predictions.shape) != wanted or predictions.is_floating_point():
        raise ValueError(f"level predictions must be integers {list(wanted)}, got {tuple(predictions.shape)}")
    targets = known_targets(targets.to(predictions.device), hierarchy.num_classes)
    predictions = predictions.long()
    sizes = torch.tensor(hierarchy.level_sizes, device=predictions.device)
    if bool(((predictions < 0) | (predictions >= sizes)).any()):  # host-device sync
        raise ValueError("a level prediction is not a node of its level")
    right = predictions == levels_of(targets, hierarchy)
    broken = torch.zeros_like(right[:, 0])
    for level, above in enumerate(hierarchy.parents):
        parent = torch.tensor(above, device=predictions.device)
        broken |= parent[predictions[:, level + 1]] != predictions[:, level]
    whole = torch.stack([torch.full_like(broken.sum(), len(right)), right.all(dim=1).sum(), broken.sum()])
    return torch.cat([whole, right.sum(dim=0)])


def level_accuracy(predictions: Tensor, targets: Tensor, hierarchy: Hierarchy) -> list[float]:
    """Return the per cent of examples whose node is right, per level, coarsest first; takes what `level_counts` does.

    Of the top-ranked class with `levels_of`, of summed probabilities with `lifted_predictions`.
    """
    counts = level_counts(predictions, targets, hierarchy).tolist()
    return [100.0 * right / counts[0] for right in counts[3:]]


def full_path_accuracy(predictions: Tensor, targets: Tensor, hierarchy: Hierarchy) -> float:
    """Return FPA: the per cent of examples whose node is right at every level; takes what `level_counts` does.

    Of predictions that follow from a class (`levels_of`) it is top-1 accuracy.
    """
    examples, whole = level_counts(predictions, targets, hierarchy)[:2].tolist()
    return 100.0 * int(whole) / int(examples)


def tree_inconsistency(predictions: Tensor, targets: Tensor, hierarchy: Hierarchy) -> float:
    """Return TICE: the per cent of examples whose nodes are not one path of the tree; takes what `level_counts` does.

    Whether the path is right does not matter, so the targets are only checked.
    """
    examples, _, broken = level_counts(predictions, targets, hierarchy)[:3].tolist()
    return 100.0 * int(broken) / int(examples)
