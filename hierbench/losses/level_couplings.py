"""HAFeature's loss: a softmax for every level, and terms that couple the levels.

Shapes: B batch, D features, K classes, L levels, M nodes of all levels, C = M - K coarse ones.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from hierbench.hierarchy.label_tree import Hierarchy
from hierbench.hierarchy.levels import coarse_levels, level_log_softmax, node_parents
from hierbench.losses.class_losses import level_targets_on
from hierbench.losses.node_targets import TargetsAre, check_batch, refuse_nodes
from hierbench.utils.errors import InputError

MAX_DISSIMILARITY = 3.0  # upper bound of the dissimilarity loss of two examples
M_FLOOR = 1e-7  # lower clamp of the mean distribution before its logarithm


def hafeature(
    logits: Tensor,
    targets: Tensor,
    tree: Hierarchy,
    *,
    weight: Tensor | None = None,
    order: Tensor | None = None,
    dissimilarity_levels: Literal["all"] | Sequence[int] = "all",
    targets_are: TargetsAre = "classes",
) -> Tensor:
    """Return the sum of the terms of `hafeature_terms`."""
    refuse_nodes("hafeature", targets_are)
    check_batch("hafeature", logits, sum(tree.level_sizes), targets)
    terms = hafeature_terms(logits, targets, tree, weight, order, dissimilarity_levels)
    return torch.stack(list(terms.values())).sum()


def hafeature_terms(
    logits: Tensor,
    targets: Tensor,
    tree: Hierarchy,
    weight: Tensor | None = None,
    order: Tensor | None = None,
    dissimilarity_levels: Literal["all"] | Sequence[int] = "all",
) -> dict[str, Tensor]:
    """Return cross-entropy of the classes, and three terms that couple the levels.

    These are the JSD between a level's probabilities and those summed over children; minus the mean cosine of a node's
    weight with the normalised sum of its children's; the dissimilarity of examples that differ at a level.

    Args:
        logits: [B, M] of all levels, coarsest first, as of `hierbench.heads.LevelHeads`.
        targets: [B] classes.
        tree: over the K classes.
        weight: [M, D] L2-normalised weights that gave the logits; None leaves their term out.
        order: [B] whose neighbours are compared; drawn at random by default.
        dissimilarity_levels: coarse levels, 1 the coarsest, with the dissimilarity term.

    Reference: Garg et al., Learning Hierarchy Aware Features, ECCV 2022.
    """
    finest = tree.level_sizes[0]  # nodes from here on have a parent
    num_coarse = sum(tree.level_sizes[:-1])
    parents, levels = _coarse_tables(tree, logits.dtype, logits.device)
    log_probs = level_log_softmax(logits, tree.level_sizes)
    coarse = log_probs[:, :num_coarse]
    child_probs = log_probs[:, finest:].exp()
    summed = torch.zeros_like(coarse).scatter_add(1, parents.expand_as(child_probs), child_probs)
    terms = {
        "cross_entropy": F.nll_loss(log_probs[:, num_coarse:], targets),
        "jsd": jensen_shannon_loss(coarse, summed),
    }
    if weight is not None:
        terms["weights"] = -_weight_cosine(weight, parents, levels, finest)
    if order is None:
        order = torch.randperm(len(targets), device=targets.device)
    coarse_targets = level_targets_on(tree, targets.device)[targets, :-1]
    dissimilarity = dissimilarity_losses(coarse, coarse_targets, order, levels)
    chosen = tuple(check_levels(tree, dissimilarity_levels))
    return terms | {"dissimilarity": (dissimilarity * _level_mask(tree, chosen, logits.dtype, logits.device)).sum()}


@lru_cache(maxsize=8)
def _coarse_tables(tree: Hierarchy, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    return node_parents(tree).to(device), coarse_levels(tree).to(device, dtype)


@lru_cache(maxsize=8)
def _level_mask(tree: Hierarchy, levels: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return [L - 1]: 1 for the coarse levels with the dissimilarity term."""
    return torch.tensor([float(level in levels) for level in range(1, tree.num_levels)], dtype=dtype, device=device)


def check_levels(tree: Hierarchy, dissimilarity_levels: Literal["all"] | Sequence[int]) -> list[int]:
    """Return the coarse levels with the dissimilarity term; a ValueError if one is not in the tree."""
    every = list(range(1, tree.num_levels))
    levels = every if dissimilarity_levels == "all" else list(dissimilarity_levels)
    if not set(levels) <= set(every):
        raise InputError(f"dissimilarity_levels must lie in 1 to {len(every)}, got {levels}")
    return levels


def jensen_shannon_loss(log_probs: Tensor, summed: Tensor) -> Tensor:
    """Return the JSD of the levels' own and their children's summed probabilities, summed over levels, batch mean.

    Args:
        log_probs: [B, C] of the coarse nodes' own heads.
        summed: [B, C] summed probabilities of their children.
    """
    probs = log_probs.exp()
    mean = 0.5 * (probs + summed)
    entropies = probs * log_probs + summed * summed.clamp_min(torch.finfo(summed.dtype).tiny).log()
    return (0.5 * entropies - mean * mean.clamp(M_FLOOR, 1.0).log()).sum() / len(probs)


def dissimilarity_losses(log_probs: Tensor, coarse_targets: Tensor, order: Tensor, levels: Tensor) -> Tensor:
    """Push the coarse predictions of neighbours in `order` apart where their labels differ; one loss per level.

    Args:
        log_probs: [B, C] of the coarse nodes.
        coarse_targets: [B, L - 1] node of each example at each coarse level.
        order: [B] a permutation of the batch.
        levels: [C, L - 1] membership, see `hierbench.hierarchy.levels.coarse_levels`.

    Returns:
        [L - 1].
    """
    log_probs = log_probs[order]
    coarse_targets = coarse_targets[order]
    probs = log_probs.exp()
    log_mean = (0.5 * (probs[1:] + probs[:-1])).clamp(M_FLOOR, 1.0).log()
    divergences = torch.stack([probs[:-1] * (log_probs[:-1] - log_mean), probs[1:] * (log_probs[1:] - log_mean)])
    hinges = (MAX_DISSIMILARITY - divergences @ levels).clamp_min(0.0).mean(dim=0)  # [B - 1, L - 1]
    differs = (coarse_targets[1:] != coarse_targets[:-1]).to(hinges)
    return (hinges * differs).sum(dim=0) / differs.sum(dim=0).clamp_min(1.0)


def _weight_cosine(weight: Tensor, parents: Tensor, levels: Tensor, finest: int) -> Tensor:
    """Return the mean cosine of a node's weight with its children's sum, summed over coarse levels."""
    coarse = weight[: len(levels)]
    summed = torch.zeros_like(coarse).index_add(0, parents, weight[finest:])
    cosines = (coarse * F.normalize(summed, dim=1)).sum(dim=1)
    return (cosines @ levels / levels.sum(dim=0)).sum()
