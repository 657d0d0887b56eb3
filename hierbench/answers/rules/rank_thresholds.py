"""Rolling up by ranks, as products do by hand: the finest rank on which a sum of scores exceeds its threshold."""

from collections.abc import Sequence

import torch
from torch import Tensor

from hierbench.answers.decision_rule import Chunks, rule
from hierbench.answers.node_metrics import example_metrics
from hierbench.hierarchy.label_tree import Hierarchy
from hierbench.metrics.node_probabilities import NodeProbabilities

NEVER = 2.0  # a threshold that no sum of probabilities exceeds


def precise_thresholds(chunks: Chunks, targets: Tensor, hierarchy: Hierarchy, precision: float) -> list[float]:
    """Return the smallest threshold of each rank, finest first, above which this share of the answers is correct.

    A rank is looked at for the examples that no finer rank answers. A rank without such a threshold has `NEVER`.

    Args:
        chunks: of the probabilities of N examples.
        targets: [N] nodes.
        hierarchy: over the classes.
        precision: the share.
    """
    sums = torch.cat([chunk.by_level.probability for _, chunk in chunks])
    nodes = torch.cat([chunk.by_level.node for _, chunk in chunks])
    unanswered = torch.ones(len(sums), dtype=torch.bool, device=sums.device)
    thresholds = list[float]()
    for level in reversed(range(sums.shape[1])):
        falling, order = sums[unanswered, level].sort(descending=True)
        correct = example_metrics(nodes[unanswered, level], targets[unanswered], hierarchy)["correct"][order]
        number = torch.arange(1, 1 + len(order), device=sums.device)
        is_last = torch.ones_like(order, dtype=torch.bool)  # of equal sums, which a threshold cannot part
        is_last[:-1] = falling[1:] < falling[:-1]
        enough = (is_last & (correct.cumsum(0) >= precision * number)).nonzero()[:, 0]
        bound = NEVER
        if len(enough):
            place = int(enough[-1])
            bound = float(falling[place + 1]) if place + 1 < len(falling) else 0.0
        thresholds.append(bound)
        unanswered &= sums[:, level] <= bound
    return thresholds


@rule("Rank thresholds", "by hand, in products", fitted="thresholds", fit=precise_thresholds)
def rank_thresholds(
    chunk: NodeProbabilities,
    thresholds: float | Sequence[float],
    within_lineage: bool = False,
    max_classes: int | None = None,
    min_ratio: float = 0.0,
    ranks: Sequence[int] | None = None,
) -> Tensor:
    """Return the node of the finest rank whose sum exceeds its threshold; the root where none does.

    Args:
        chunk: the probabilities.
        thresholds: of each rank, finest first; the last one is that of all coarser ranks.
        within_lineage: whether the node of a rank is the ancestor of the best class rather than the one of the largest
            sum.
        max_classes: how many of the best classes are summed; None: all.
        min_ratio: classes of a smaller share of the best one's probability are left out.
        ranks: the levels of the tree that are looked at, finest first, 1 the coarsest; None: all.
    """
    levels = chunk.hierarchy.num_levels
    looked_at = list(range(levels, 0, -1)) if ranks is None else [rank for rank in ranks if rank >= 1]
    if any(rank > levels for rank in looked_at) or not looked_at:
        raise ValueError(f"ranks must be levels of the tree, from {levels}, the finest, to 1, got {ranks}")
    bounds = list(thresholds) if isinstance(thresholds, Sequence) else [thresholds]
    if not bounds:
        raise ValueError("give at least one threshold")
    bounds += bounds[-1:] * (len(looked_at) - len(bounds))
    if max_classes is not None or min_ratio > 0.0:
        chunk = NodeProbabilities(_kept(chunk.classes, max_classes, min_ratio), chunk.hierarchy, chunk.top)
    if within_lineage:
        nodes = chunk.tables.nodes.paths[chunk.top]
        sums = chunk.nodes.gather(1, nodes)
    else:
        sums, _, nodes = chunk.by_level
    columns = [rank - 1 for rank in looked_at]
    above = sums[:, columns] > torch.tensor(bounds[: len(columns)], dtype=sums.dtype, device=sums.device)
    above = torch.cat([above, torch.ones_like(above[:, :1])], dim=1)
    candidates = torch.cat([nodes[:, columns], torch.zeros_like(nodes[:, :1])], dim=1)
    return candidates.gather(1, above.to(torch.uint8).argmax(dim=1, keepdim=True))[:, 0]


def _kept(probabilities: Tensor, max_classes: int | None, min_ratio: float) -> Tensor:
    """Return the probabilities [B, K] of the classes that count, with a sum of 1."""
    kept = probabilities >= min_ratio * probabilities.amax(dim=1, keepdim=True)
    if max_classes is not None and max_classes < probabilities.shape[1]:
        best = probabilities.topk(max_classes, dim=1).indices
        kept &= torch.zeros_like(kept).scatter(1, best, value=True)
    summed = torch.where(kept, probabilities, 0.0)
    return summed / summed.sum(dim=1, keepdim=True)


@rule("Roll-up, iNaturalist", "inatVisionAPI 33385b2d, common ancestor")
def inaturalist_rollup(chunk: NodeProbabilities) -> Tensor:
    """Return the finest node above the classes whose sum exceeds 0.78, of the 15 best within 1% of the best."""
    coarser = range(chunk.hierarchy.num_levels - 1, 0, -1)
    if not coarser:
        return torch.zeros_like(chunk.top)
    return rank_thresholds(chunk, 0.78, max_classes=15, min_ratio=0.01, ranks=coarser)


@rule("Roll-up, SpeciesNet", "cameratrapai 6520b836, geofence_utils")
def speciesnet_rollup(chunk: NodeProbabilities) -> Tensor:
    """Return the best class above 0.8, else the best node of the finest rank above 0.65."""
    return rank_thresholds(chunk, (0.8, 0.65))


@rule("Roll-up, Antenna", "Antenna, rank_rollup, pull request 1361")
def antenna_rollup(chunk: NodeProbabilities) -> Tensor:
    """Return the best node above 0.8 among classes, 0.6 one rank up, or 0.4 two ranks up; else the root."""
    levels = chunk.hierarchy.num_levels
    return rank_thresholds(chunk, (0.8, 0.6, 0.4), ranks=range(levels, max(levels - 3, 0), -1))
