"""Modules that turn features into the logits of `hierbench.losses`.

Shapes: B batch, D features, K classes, L levels, M nodes of all levels, a shallow class once per level.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hierbench.hierarchy.label_tree import Hierarchy
from hierbench.losses.frames import Frame, random_simplex

__all__ = ["Etf", "FlamingoHeads", "Frame", "LevelHeads"]


class Etf(nn.Module):
    """A fixed classifier of unit vectors whose cosines are all -1 / (K - 1), on features of unit length.

    Args:
        tree: over the K classes.
        in_features: D; a linear layer maps fewer than K - 1 features to K.
        length: of the vectors, a scale of the logits.

    Reference: Yang et al., NeurIPS 2022.
    """

    weight: Tensor

    def __init__(self, tree: Hierarchy, in_features: int, length: float = 1.0) -> None:
        super().__init__()
        num_classes = tree.num_classes
        self.length = length
        is_wide = in_features >= num_classes - 1
        self.project = nn.Identity() if is_wide else nn.Linear(in_features, num_classes)
        if is_wide:
            weight = random_simplex(num_classes, in_features)
        else:  # the layer absorbs any rotation
            scale = math.sqrt(num_classes / (num_classes - 1.0))
            weight = (torch.eye(num_classes, dtype=torch.float64) - 1.0 / num_classes) * scale
        self.register_buffer("weight", weight.to(torch.get_default_dtype()))

    def forward(self, features: Tensor) -> Tensor:
        """Return logits [B, K] for features [B, D]."""
        return F.linear(F.normalize(self.project(features), dim=1) * self.length, self.weight)


class LevelHeads(nn.Module):
    """A linear classifier for every level on the same features.

    Args:
        tree: over the classes.
        in_features: D.
        normalised: whether the rows of the weights have length 1, as in HAFeature.
    """

    def __init__(self, tree: Hierarchy, in_features: int, *, normalised: bool = False) -> None:
        super().__init__()
        self.level_sizes = list(tree.level_sizes)
        self.linear = nn.Linear(in_features, sum(self.level_sizes))
        self.normalised = normalised

    @property
    def weight(self) -> Tensor:
        """[M, D], of length 1 where they are normalised."""
        return F.normalize(self.linear.weight, dim=1) if self.normalised else self.linear.weight

    def forward(self, features: Tensor) -> Tensor:
        """Return logits [B, M] of all levels side by side, coarsest first, for features [B, D]."""
        return F.linear(features, self.weight, self.linear.bias)

    def split(self, logits: Tensor) -> list[Tensor]:
        """Return the logits [B, level_sizes[l]] of each level."""
        return list(logits.split(self.level_sizes, dim=1))


class FlamingoHeads(nn.Module):
    """A linear classifier per level; head l sees slices l to L of the features, and its gradient flows into slice l.

    Args:
        tree: over the classes.
        in_features: D, at least L.

    Reference: Chang et al., Your Flamingo is My Bird, CVPR 2021.
    """

    def __init__(self, tree: Hierarchy, in_features: int) -> None:
        super().__init__()
        self.slices = split_sizes(in_features, tree.num_levels)
        seen = [sum(self.slices[level:]) for level in range(tree.num_levels)]
        self.heads = nn.ModuleList(map(nn.Linear, seen, tree.level_sizes))

    def forward(self, features: Tensor) -> list[Tensor]:
        """Return each level's logits [B, level_sizes[l]], coarsest first, for features [B, D]."""
        return sliced_logits(self.heads, features, self.slices)


def split_sizes(num_features: int, num_levels: int) -> list[int]:
    """Return how many features each level owns, coarsest first: equal shares, the finest also gets the remainder."""
    if num_features < num_levels:
        raise ValueError(f"flamingo needs a feature per level ({num_levels}), got {num_features}")
    share = num_features // num_levels
    return [share] * (num_levels - 1) + [num_features - share * (num_levels - 1)]


def sliced_logits(heads: nn.ModuleList, features: Tensor, slices: list[int]) -> list[Tensor]:
    """Return the logits of `FlamingoHeads`."""
    parts = features.split(slices, dim=1)
    finer = [features.detach()[:, sum(slices[: level + 1]) :] for level in range(len(parts))]
    return [head(torch.cat(inputs, dim=1)) for head, *inputs in zip(heads, parts, finer, strict=True)]
