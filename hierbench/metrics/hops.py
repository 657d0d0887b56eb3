"""HOPS: how well the whole ranking of the classes follows the tree. Shapes: N examples, K classes, k ranked ones."""

import torch
from torch import Tensor

from hierbench.hierarchy.label_tree import Hierarchy
from hierbench.hierarchy.levels import class_distances, classes_at_distances
from hierbench.metrics.ranked_classes import check_shapes, known_targets, rows_at_a_time, top_classes


def hops_scores(scores: Tensor, targets: Tensor, hierarchy: Hierarchy, k: int | None = None) -> Tensor:
    """Return HOPS@k of each example, a fraction between 0 (as bad as the reversed ideal ranking, or worse) and 1.

    The rank r of a class is the place of its distance among the distances that occur for the target, from 0 for the
    target itself. Sorted by distance, the classes have the ideal ranks r*; sorted by score, the ranks r. Then

        HOPS@k = clip(1 - sum_j<=k w_j |r*_j - r_j| / sum_j<=k w_j |r*_j - r*_(k+1-j)|, 0, 1).

    The i-th of the n places, i from 0, whose ideal rank is a has w = 2^-a + (low - 2^-a) i / n with low = 2^-(a+1), and
    0 at the last rank. The k best ideal ranks reversed are not the worst that k classes can have, so small k are often
    clipped to 0. At k = 1 nothing can be reversed: 1 for the target, else 0.

    Sani et al. (Hier-COS), CVPR 2026; their notebook gives a tie to the higher class index, this to the lower.

    Args:
        scores: [N, K], larger = ranked earlier.
        targets: [N] class indices.
        hierarchy: over the K classes.
        k: 1 to K; all classes by default.

    Returns:
        [N] float64.

    Raises:
        ValueError: no examples, wrong shapes, a k out of range, a target that is not a class, or a NaN score.
    """
    check_shapes(scores, targets, hierarchy.num_classes)
    k = hierarchy.num_classes if k is None else k
    if not 1 <= k <= hierarchy.num_classes:
        raise ValueError(f"k must be from 1 to {hierarchy.num_classes}, got {k}")
    targets = known_targets(targets.to(scores.device), hierarchy.num_classes)
    parts = []
    rows = rows_at_a_time(4 * max(k, hierarchy.height + 1))
    for part, part_targets in zip(scores.split(rows), targets.split(rows), strict=True):
        away = class_distances(top_classes(part, k), part_targets, hierarchy)
        parts.append(_of_distances(away, classes_at_distances(hierarchy, scores.device)[part_targets]))
    return torch.cat(parts)


def _of_distances(away: Tensor, counts: Tensor) -> Tensor:
    """Return HOPS [N] of the ranked classes' distances [N, k], given the classes at each distance [N, height + 1]."""
    rank_of = (counts > 0).cumsum(dim=1) - 1  # of a distance
    ends = counts.cumsum(dim=1)
    places = torch.arange(away.shape[1], device=away.device).expand_as(away).contiguous()
    distance = torch.searchsorted(ends, places, right=True)  # ideal, at each place
    ideal = rank_of.gather(1, distance)
    size = counts.gather(1, distance).double()
    index = size - (ends.gather(1, distance) - places)
    high = torch.exp2(-ideal.double())
    low = torch.where(ideal == rank_of[:, -1:], 0.0, high / 2.0)
    weights = high + (low - high) * index / size
    off = (weights * (ideal - rank_of.gather(1, away)).abs()).sum(dim=1)
    most = (weights * (ideal - ideal.flip(1)).abs()).sum(dim=1)
    worst = torch.where(most > 0, most, torch.where(off > 0, off, 1.0))
    return (1.0 - off / worst).clamp(0.0, 1.0)
