"""The path of the top-ranked class against the target's: hierarchical precision, recall and F, and severity in bits.

Shapes: N examples, K classes, L levels. A path is the set of nodes from below the root down to a class: real nodes, so
that a leaf above the deepest level counts once. All sums are integers.
"""

import math

import torch
from torch import Tensor

from hierbench.hierarchy.levels import distances_on
from hierbench.hierarchy.tree import Hierarchy
from hierbench.metrics.levels import nodes_on
from hierbench.metrics.ranking import check_shapes, known_targets, raise_for, ranked
from hierbench.metrics.sums import CHUNK

SCORES = ("hp_micro", "hr_micro", "hf_micro", "hp_macro", "hr_macro", "hf_macro")
_AXES = ((-1, 1, 1), (1, -1, 1), (1, 1, -1))  # of the counts: shared, predicted, true


def shared_nodes(classes: Tensor, targets: Tensor, hierarchy: Hierarchy) -> Tensor:
    """Return how many nodes the paths of classes [N] and targets [N] share, [N]: the depth of their LCA."""
    nodes = nodes_on(hierarchy, classes.device)
    same = (nodes.paths[classes] == nodes.paths[targets]) & nodes.on_path[classes] & nodes.on_path[targets]
    return same.sum(dim=1)


def path_counts(classes: Tensor, targets: Tensor, hierarchy: Hierarchy) -> Tensor:
    """Count examples by what hierarchical precision, recall and F depend on; counts of batches can be added up.

    Args:
        classes: [N] predicted classes.
        targets: [N] class indices.
        hierarchy: over the K classes.

    Returns:
        [L + 1, L + 1, L + 1] int64: examples with this many shared nodes, nodes on the prediction's path, nodes on the
        target's path.
    """
    targets = known_targets(targets.to(classes.device), hierarchy.num_classes)
    nodes, size = nodes_on(hierarchy, classes.device), hierarchy.num_levels + 1
    length = nodes.on_path.sum(dim=1)
    shared = shared_nodes(classes, targets, hierarchy)
    index = (shared * size + length[classes]) * size + length[targets]
    return index.bincount(minlength=size**3).reshape(size, size, size)


def hierarchical_scores(counts: Tensor) -> dict[str, float]:
    """Return hierarchical precision, recall and F in per cent from `path_counts`.

    Micro divides sums over examples, macro is the mean over examples, of F too. The root is on no path: it is in every
    prediction and would raise all values. Kiritchenko et al., Canadian AI 2006; with the names micro and macro,
    Kosmopoulos et al., Data Mining and Knowledge Discovery 2015.

    Args:
        counts: [L + 1, L + 1, L + 1].

    Returns:
        {name: value} for the names of `SCORES`.

    Raises:
        ValueError: no examples.
    """
    weights = counts.cpu().double()
    if not bool(weights.any()):
        raise ValueError("no examples to evaluate")
    shared, predicted, true = (torch.arange(len(counts), dtype=torch.float64).reshape(shape) for shape in _AXES)
    examples = float(weights.sum())
    total = float((weights * shared).sum())
    predictions, targets = float((weights * predicted).sum()), float((weights * true).sum())
    # Every path has at least one node, so the places with a 0 in a denominator hold no examples.
    fractions = {
        "hp_micro": total / predictions,
        "hr_micro": total / targets,
        "hf_micro": 2.0 * total / (predictions + targets),
        "hp_macro": float((weights * shared / predicted.clamp_min(1)).sum()) / examples,
        "hr_macro": float((weights * shared / true.clamp_min(1)).sum()) / examples,
        "hf_macro": float((weights * 2.0 * shared / (predicted + true).clamp_min(1)).sum()) / examples,
    }
    return {name: 100.0 * value for name, value in fractions.items()}


def leaves_below_lca(classes: Tensor, targets: Tensor, hierarchy: Hierarchy) -> Tensor:
    """Return the number of classes below the LCA of classes [N] and targets [N], [N] int64; 1 where they agree."""
    nodes = nodes_on(hierarchy, classes.device)
    shared = shared_nodes(classes, targets, hierarchy)
    lowest = nodes.paths[targets, (shared - 1).clamp_min(0)]
    return nodes.num_leaves[torch.where(shared > 0, lowest, 0)]


def lca_counts(classes: Tensor, targets: Tensor, hierarchy: Hierarchy) -> Tensor:
    """Count the mistakes by the number of classes below their LCA: [K + 1] int64; counts of batches can be added up."""
    targets = known_targets(targets.to(classes.device), hierarchy.num_classes)
    below = leaves_below_lca(classes, targets, hierarchy)[classes != targets]
    return below.bincount(minlength=hierarchy.num_classes + 1)


def information_severity(counts: Tensor) -> float:
    """Return the mean over mistakes of log2(classes below the LCA) in bits, from `lca_counts`; NaN without mistakes.

    How much is still to be told about the class once the LCA is known, if all classes are equally frequent: Valmadre,
    NeurIPS 2022, whose information of a node is log2(K / classes below it).
    """
    weights = counts.cpu().double()
    mistakes = float(weights.sum())
    bits = torch.arange(len(counts), dtype=torch.float64).clamp_min(1.0).log2()
    return float((weights * bits).sum()) / mistakes if mistakes else math.nan


def min_distance_counts(scores: Tensor, targets: Tensor, hierarchy: Hierarchy, ks: list[int]) -> Tensor:
    """Return [1 + len(ks)] int64: examples, then for each k the sum of the smallest distance among the k best classes.

    Counts of batches can be added up; the metric is a sum divided by the examples.

    Args:
        scores: [N, K], larger = ranked earlier.
        targets: [N] class indices.
        hierarchy: over the K classes.
        ks: from 1 to K each.

    Raises:
        ValueError: no examples, wrong shapes, a target that is not a class, or a NaN score.
    """
    check_shapes(scores, targets, hierarchy.num_classes)
    targets = known_targets(targets.to(scores.device), hierarchy.num_classes)
    distances = distances_on(hierarchy, scores.device)
    sums = torch.zeros(1 + len(ks), dtype=torch.int64, device=scores.device)
    for part, part_targets in zip(scores.split(CHUNK), targets.split(CHUNK), strict=True):
        classes, num_nan = ranked(part, max(ks))
        raise_for(int(num_nan), 0, hierarchy.num_classes)
        smallest = distances[part_targets[:, None], classes].cummin(dim=1).values.sum(dim=0, dtype=torch.int64)
        sums += torch.stack([torch.full_like(num_nan, len(part)), *(smallest[k - 1] for k in ks)])
    return sums
