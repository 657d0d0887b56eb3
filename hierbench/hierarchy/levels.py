"""All levels of a hierarchy laid side by side, so that methods with a head per level need no loop over nodes.

Shapes: B batch, K classes, L levels, M nodes of all levels together (coarsest level first, the K classes last),
C = M - K coarse nodes.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from hierbench.hierarchy.label_tree import MATRIX_CLASSES, Hierarchy
from hierbench.hierarchy.nodes import Nodes

PAIRS_AT_A_TIME = 2**17


@lru_cache(maxsize=8)
def distances_on(hierarchy: Hierarchy, device: torch.device) -> Tensor:
    """Return the hierarchical distances [K, K] int16 on a device, one copy for the metrics and the methods."""
    return torch.tensor(hierarchy.distances, device=device)


@lru_cache(maxsize=8)
def nodes_on(hierarchy: Hierarchy, device: torch.device) -> Nodes:
    """Return the tree's nodes on a device."""
    return Nodes(hierarchy).to(device)


def distances_from(classes: Tensor, hierarchy: Hierarchy) -> Tensor:
    """Return the hierarchical distances [B, K] of all classes from classes [B], as integers."""
    if hierarchy.num_classes <= MATRIX_CLASSES:
        return distances_on(hierarchy, classes.device)[classes].int()
    nodes = nodes_on(hierarchy, classes.device)
    on_path = torch.zeros(len(classes), nodes.num_nodes, device=classes.device)
    return nodes.expected_distances(on_path.scatter_(1, nodes.paths[classes], 1.0)).int()


def class_distances(classes: Tensor, targets: Tensor, hierarchy: Hierarchy) -> Tensor:
    """Return the hierarchical distances [N, k] int64 of classes [N, k] from targets [N].

    Above `MATRIX_CLASSES` each is that of the lowest node on both paths, so that no matrix [K, K] is needed.
    """
    if hierarchy.num_classes <= MATRIX_CLASSES:
        return distances_on(hierarchy, classes.device)[targets[:, None], classes].long()
    nodes = nodes_on(hierarchy, classes.device)
    on_way = torch.cat([torch.zeros_like(nodes.paths[:, :1]), nodes.paths], dim=1)  # [K, 1 + L], the root first
    at_a_time = PAIRS_AT_A_TIME // max(classes.shape[1], 1) + 1
    parts = [torch.empty_like(classes[:0])]
    for start in range(0, len(classes), at_a_time):
        rows = slice(start, start + at_a_time)
        shared = (nodes.paths[targets[rows], None] == nodes.paths[classes[rows]]).sum(dim=2)
        parts.append(nodes.distance[on_way[targets[rows]].gather(1, shared)])
    return torch.cat(parts)


@lru_cache(maxsize=8)
def classes_at_distances(hierarchy: Hierarchy, device: torch.device) -> Tensor:
    """Return [K, height + 1] int64: how many classes are at each distance from a class."""
    nodes = nodes_on(hierarchy, device)
    path = F.pad(nodes.paths, (1, 0))  # with the root; filled with the class
    sizes = nodes.num_leaves[path]
    parting = sizes - F.pad(sizes[:, 1:], (0, 1))  # classes whose paths leave the class's at each node
    counts = torch.zeros(hierarchy.num_classes, hierarchy.height + 1, dtype=torch.int64, device=device)
    return counts.scatter_add_(1, nodes.distance[path], parting)


def node_parents(hierarchy: Hierarchy) -> Tensor:
    """Return [M - level_sizes[0]] int64: the parent, among the C coarse nodes, of every node below the first level."""
    starts = np.cumsum([0, *hierarchy.level_sizes])  # of each level among the M nodes
    parents = [above + start for above, start in zip(hierarchy.parents, starts[:-2], strict=True)]
    return torch.from_numpy(np.concatenate([np.empty(0, dtype=np.int64), *parents]))


def coarse_levels(hierarchy: Hierarchy) -> Tensor:
    """Return [C, L - 1] float32: 1 where a coarse node belongs to a level; multiplying by it sums over each level."""
    sizes = hierarchy.level_sizes[:-1]
    return torch.from_numpy(np.repeat(np.eye(len(sizes), dtype=np.float32), sizes, axis=0))


def level_log_softmax(logits: Tensor, level_sizes: Sequence[int]) -> Tensor:
    """Return log-probabilities [B, M] of logits [B, M], normalised within each level."""
    return torch.cat([part.log_softmax(dim=1) for part in logits.split(list(level_sizes), dim=1)], dim=1)
