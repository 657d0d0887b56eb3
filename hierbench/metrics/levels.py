"""Predictions per level of the tree. Shapes: N examples, K classes, L levels, M nodes of all levels together."""

from functools import lru_cache

import torch
from torch import Tensor

from hierbench.hierarchy.nodes import Nodes
from hierbench.hierarchy.tree import Hierarchy
from hierbench.metrics.ranking import top_class

NUMBERS_AT_A_TIME = 2**23  # of float64, 64 MiB; bounds the memory of every table over examples and nodes


@lru_cache(maxsize=8)
def nodes_on(hierarchy: Hierarchy, device: torch.device) -> Nodes:
    """Return the tree's nodes on a device."""
    return Nodes(hierarchy).to(device)


def rows_at_a_time(width: int) -> int:
    """Return how many examples to take at a time where a table has `width` numbers for each."""
    return max(1, NUMBERS_AT_A_TIME // max(1, width))


def lifted_predictions(probabilities: Tensor, hierarchy: Hierarchy) -> Tensor:
    """Return the node of largest probability per level, the sum over the classes below it; ties to the lower index.

    Args:
        probabilities: [N, K].
        hierarchy: over the K classes.

    Returns:
        [N, L] int64 node index per level, coarsest first, as in `Hierarchy.level_targets`.
    """
    nodes = nodes_on(hierarchy, probabilities.device)
    rows = rows_at_a_time(len(nodes.path_leaf) + len(nodes.levels))
    parts = []
    for part in probabilities.split(rows):
        by_node = nodes.leaf_sums(part.double())[:, nodes.levels]
        parts.append(torch.stack([top_class(level) for level in by_node.split(hierarchy.level_sizes, dim=1)], dim=1))
    return torch.cat(parts) if parts else probabilities.new_zeros((0, hierarchy.num_levels), dtype=torch.int64)
