"""All levels of a hierarchy laid side by side, so that methods with a head per level need no loop over nodes.

Shapes: B batch, K classes, L levels, M nodes of all levels together (a level's nodes follow those of the coarser one,
the K classes come last), C = M - K coarse nodes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from hierbench.hierarchy.tree import Hierarchy


def level_offsets(hierarchy: Hierarchy) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return [L] int64: where each level starts among the M nodes."""
    return np.concatenate([[0], np.cumsum(hierarchy.level_sizes[:-1])]).astype(np.int64)


def node_targets(hierarchy: Hierarchy) -> Tensor:
    """Return [K, L] int64: each class's node at each level, numbered among the M nodes."""
    return torch.from_numpy(hierarchy.level_targets + level_offsets(hierarchy))


def node_parents(hierarchy: Hierarchy) -> Tensor:
    """Return [M - level_sizes[0]] int64: the parent, among the C coarse nodes, of every node below the first level."""
    offsets = level_offsets(hierarchy)
    parents = [above + offset for above, offset in zip(hierarchy.parents, offsets[:-1], strict=True)]
    return torch.from_numpy(np.concatenate([np.empty(0, dtype=np.int64), *parents]))


def coarse_levels(hierarchy: Hierarchy) -> Tensor:
    """Return [C, L - 1] float32: 1 where a coarse node belongs to a level; a product with it sums per level."""
    sizes = torch.tensor(hierarchy.level_sizes[:-1], dtype=torch.int64)
    return torch.repeat_interleave(torch.eye(len(sizes)), sizes, dim=0)


def level_log_softmax(logits: Tensor, level_sizes: Sequence[int]) -> Tensor:
    """Return log-probabilities [B, M] of logits [B, M], normalised within each level."""
    return torch.cat([part.log_softmax(dim=1) for part in logits.split(list(level_sizes), dim=1)], dim=1)
