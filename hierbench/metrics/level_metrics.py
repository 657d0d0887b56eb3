"""Predictions per level of the tree: accuracy by level, and whether the levels agree.

Shapes: N examples, K classes, L levels, M nodes of all levels together. A level prediction [N, L] is a node's index
within each level, coarsest first, as in `Hierarchy.level_targets`; a leaf above the deepest level is repeated below it.
"""

from functools import lru_cache

import torch
from torch import Tensor

from hierbench.hierarchy.label_tree import Hierarchy
from hierbench.hierarchy.nodes import Nodes

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
    rows = rows_at_a_time(nodes.num_nodes + len(nodes.levels))
    for start in range(0, len(probabilities), rows):
        by_node = nodes.leaf_sums(probabilities[start : start + rows].double())[:, nodes.levels]
        for level, part in enumerate(by_node.split(hierarchy.level_sizes, dim=1)):
            chosen[start : start + rows, level] = part.argmax(dim=1)  # the first of the largest
    return chosen


def levels_from_paths(classes: Tensor, hierarchy: Hierarchy) -> Tensor:
    """Return the nodes [N, L] of the paths of classes [N]; their TICE is 0."""
    return torch.tensor(hierarchy.level_targets, device=classes.device)[classes]


def level_counts(predictions: Tensor, targets: Tensor, hierarchy: Hierarchy) -> Tensor:
    """Return each example's contribution to the sums from which level accuracies, FPA and TICE follow.

    Args:
        predictions: [N, L]. Of the top-ranked class with `levels_from_paths`, of summed probabilities with
            `lifted_predictions`.
        targets: [N] class indices.
        hierarchy: over the K classes.

    Returns:
        [N, 2 + L] int64: 1 if right at every level, 1 if its nodes are not one path, then for each level 1 if right.

    Raises:
        ValueError: wrong shapes, or an index that is not a node of its level.
    """
    expected_shape = (len(targets), hierarchy.num_levels)
    if tuple(predictions.shape) != expected_shape or predictions.is_floating_point():
        raise ValueError(f"level predictions must be integers {list(expected_shape)}, got {tuple(predictions.shape)}")
    predictions = predictions.long()
    sizes = torch.tensor(hierarchy.level_sizes, device=predictions.device)
    if bool(((predictions < 0) | (predictions >= sizes)).any()):  # host-device sync
        raise ValueError("a level prediction is not a node of its level")
    right = predictions == levels_from_paths(targets, hierarchy)
    broken = torch.zeros_like(right[:, 0])
    for level, above in enumerate(hierarchy.parents):
        parent = torch.tensor(above, device=predictions.device)
        broken |= parent[predictions[:, level + 1]] != predictions[:, level]
    return torch.cat([right.all(dim=1, keepdim=True), broken[:, None], right], dim=1).long()
