"""Flamingo: features are split over the levels, and a coarse head's loss trains only its own slice."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hierbench import Hierarchy, Method


def split_sizes(num_features: int, num_levels: int) -> list[int]:
    """Return how many features each level owns, coarsest first: equal shares, the finest also gets the remainder."""
    if num_features < num_levels:
        raise ValueError(f"flamingo needs a feature per level ({num_levels}), got {num_features}")
    share = num_features // num_levels
    return [share] * (num_levels - 1) + [num_features - share * (num_levels - 1)]


class Flamingo(Method):
    """One linear head per level; head l sees slices l to L, and its gradient flows only into slice l.

    The loss is the unweighted sum of the levels' cross-entropies; the finest head gives the scores.
    Shapes: B batch, D features, L levels, K_l nodes of level l.
    """

    name = "flamingo"
    title = "Flamingo"
    source = (
        "Chang et al., Your Flamingo is My Bird: Fine-Grained, or Not, CVPR 2021; Liang & Davis, ICCV 2023, section 4"
    )

    level_targets: Tensor

    def __init__(self, hierarchy: Hierarchy, num_features: int, params: Any = None) -> None:
        super().__init__(hierarchy, num_features, params)
        self.split = split_sizes(num_features, hierarchy.num_levels)
        seen = [sum(self.split[level:]) for level in range(hierarchy.num_levels)]
        self.heads = nn.ModuleList(map(nn.Linear, seen, hierarchy.level_sizes))
        self.register_buffer("level_targets", torch.tensor(hierarchy.level_targets), persistent=False)

    def forward(self, features: Tensor) -> list[Tensor]:
        """Return each level's logits [B, K_l], coarsest first, for features [B, D]."""
        own = features.split(self.split, dim=1)
        finer = [features.detach()[:, sum(self.split[: level + 1]) :] for level in range(len(own))]
        return [head(torch.cat(parts, dim=1)) for head, *parts in zip(self.heads, own, finer, strict=True)]

    def loss(self, outputs: list[Tensor], targets: Tensor) -> dict[str, Tensor]:
        """Return one cross-entropy per level for targets [B]."""
        targets_at = self.level_targets[targets].unbind(dim=1)
        losses = map(F.cross_entropy, outputs, targets_at)
        return {f"cross_entropy_{level}": loss for level, loss in enumerate(losses, 1)}

    def scores(self, outputs: list[Tensor]) -> Tensor:
        """Return the finest head's logits [B, K]."""
        return outputs[-1]

    def level_scores(self, outputs: list[Tensor]) -> list[Tensor]:
        """Return each head's logits [B, K_l], coarsest first."""
        return outputs
