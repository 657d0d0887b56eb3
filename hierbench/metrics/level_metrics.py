"""Predictions per level of the tree: accuracy by level, and whether the levels agree.

Shapes: N examples, K classes, L levels, M nodes of all levels together. A level prediction [N, L] is a node's index
within each level, coarsest first, as in `Hierarchy.level_targets`; a leaf above the deepest level is repeated below it.
"""

import torch
from torch import Tensor

from hierbench.hierarchy.label_tree import Hierarchy
from hierbench.metrics.node_probabilities import chunks
from hierbench.metrics.ranked_classes import check_probabilities


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
    chosen = torch.empty((len(probabilities), hierarchy.num_levels), dtype=torch.int64, device=probabilities.device)
    for rows, chunk in chunks(probabilities, hierarchy):
        chosen[rows] = chunk.by_level.place
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
