"""Metrics of a prediction per level of the tree. Shapes: N examples, L levels."""

from typing import Any

import torch

from hierbench.hierarchy.tree import Hierarchy
from hierbench.metrics import levels
from hierbench.metrics.functions.inputs import classes_of
from hierbench.metrics.ranking import as_tensor


def full_path_accuracy_score(y_true: Any, y_levels: Any, tree: Hierarchy) -> float:
    """Return FPA, the fraction of examples whose node is right at every level: mean [n_1 = A_1(y), ..., n_L = A_L(y)].

    Source: Park et al. (H-CAST), ICLR 2025.

    Args:
        y_true: [N] classes, indices in the tree's order or names.
        y_levels: [N, L] node index per level, coarsest first, as in `Hierarchy.level_targets`.
        tree: over the K classes.

    Raises:
        ValueError: no examples, wrong shapes, or what is no class or no node of its level.

    Example:
        >>> from hierbench import Hierarchy, metrics
        >>> tree = Hierarchy.from_paths({"oak": ("plant", "oak"), "fern": ("plant", "fern"), "cat": ("animal", "cat")})
        >>> metrics.full_path_accuracy_score(["oak", "cat"], [[1, 0], [1, 2]], tree)  # animal 0, plant 1
        0.5
    """
    return levels.full_path_accuracy(*_given(y_true, y_levels, tree), tree) / 100.0


def tree_inconsistency_loss(y_true: Any, y_levels: Any, tree: Hierarchy) -> float:
    """Return TICE, the fraction of examples whose nodes are not one path: mean [n_l is not the parent of n_(l+1)].

    Whether the path is right does not matter, so that y_true is only checked. Arguments, errors and source as in
    `full_path_accuracy_score`.

    Example:
        >>> from hierbench import Hierarchy, metrics
        >>> tree = Hierarchy.from_paths({"oak": ("plant", "oak"), "fern": ("plant", "fern"), "cat": ("animal", "cat")})
        >>> metrics.tree_inconsistency_loss(["oak", "cat"], [[1, 0], [1, 2]], tree)  # a cat is no plant
        0.5
    """
    return levels.tree_inconsistency(*_given(y_true, y_levels, tree), tree) / 100.0


def _given(y_true: Any, y_levels: Any, tree: Hierarchy) -> tuple[torch.Tensor, torch.Tensor]:
    """Return level predictions [N, L] and targets [N]."""
    given = as_tensor(y_levels, "y_levels must be integers [N, L]")
    return given, torch.from_numpy(classes_of(y_true, tree, "y_true"))
