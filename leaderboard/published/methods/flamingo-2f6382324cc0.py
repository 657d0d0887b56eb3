"""Flamingo: features are split over the levels, and a coarse head's loss trains only its own slice."""

from typing import Any

from torch import Tensor, nn

from hierbench import Hierarchy, Method
from hierbench.heads import sliced_logits, split_sizes
from hierbench.losses.class_losses import level_losses


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

    def __init__(self, hierarchy: Hierarchy, num_features: int, params: Any = None) -> None:
        super().__init__(hierarchy, num_features, params)
        self.split = split_sizes(num_features, hierarchy.num_levels)
        seen = [sum(self.split[level:]) for level in range(hierarchy.num_levels)]
        self.heads = nn.ModuleList(map(nn.Linear, seen, hierarchy.level_sizes))

    def forward(self, features: Tensor) -> list[Tensor]:
        """Return each level's logits [B, K_l], coarsest first, for features [B, D]."""
        return sliced_logits(self.heads, features, self.split)

    def loss(self, outputs: list[Tensor], targets: Tensor) -> dict[str, Tensor]:
        """Return one cross-entropy per level for targets [B]."""
        losses = level_losses(outputs, targets, self.hierarchy)
        return {f"cross_entropy_{level}": loss for level, loss in enumerate(losses, 1)}

    def scores(self, outputs: list[Tensor]) -> Tensor:
        """Return the finest head's logits [B, K]."""
        return outputs[-1]

    def level_scores(self, outputs: list[Tensor]) -> list[Tensor]:
        """Return each head's logits [B, K_l], coarsest first."""
        return outputs
