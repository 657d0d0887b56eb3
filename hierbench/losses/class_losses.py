"""Losses of logits for the classes, or of logits for every level.

Shapes: B batch, D features, K classes, N nodes with the root, L levels, M nodes of all levels, C = M - K coarse ones.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from hierbench.hierarchy.label_tree import Hierarchy
from hierbench.hierarchy.levels import level_log_softmax, nodes_on
from hierbench.losses.node_targets import TargetsAre, check_batch, class_columns, refuse_nodes, target_paths
from hierbench.utils.errors import InputError


def cross_entropy(logits: Tensor, targets: Tensor, tree: Hierarchy, *, targets_are: TargetsAre = "classes") -> Tensor:
    """Return the mean of -log p(target) for logits [B, K]; the probability of a node is the sum of its classes'."""
    check_batch("cross_entropy", logits, tree.num_classes, targets)
    if targets_are == "classes":
        return F.cross_entropy(logits, targets)
    ways = target_paths(targets, tree, targets_are)
    sums = ways.nodes.leaf_log_sums(logits.log_softmax(dim=1))
    return -sums.gather(1, ways.node[:, None]).mean()


def multilevel_cross_entropy(
    logits: Tensor,
    targets: Tensor,
    tree: Hierarchy,
    *,
    form: Literal["lifted", "heads"] = "lifted",
    count: Literal["levels", "nodes"] = "levels",
    targets_are: TargetsAre = "classes",
) -> Tensor:
    """Return the sum over the levels of the cross-entropy of the target's node at the level.

    Args:
        logits: [B, K]; with `form = "heads"` [B, M], a softmax for every level.
        targets: [B]; levels below a target that is a node do not count.
        tree: over the K classes.
        form: "lifted": a node's probability is the sum of its classes'.
        count: how often a class above the deepest level counts: "levels", once per level; "nodes", once.
        targets_are: "classes", or "nodes" of the tree.

    Reference: baselines of Valmadre, NeurIPS 2022.
    """
    width = tree.num_classes if form == "lifted" else sum(tree.level_sizes)
    check_batch("multilevel_cross_entropy", logits, width, targets)
    return level_cross_entropies(logits, targets, tree, form, count, targets_are).sum()


def level_cross_entropies(
    logits: Tensor,
    targets: Tensor,
    tree: Hierarchy,
    form: Literal["lifted", "heads"] = "lifted",
    count: Literal["levels", "nodes"] = "levels",
    targets_are: TargetsAre = "classes",
) -> Tensor:
    """Return the terms [L] of `multilevel_cross_entropy`, coarsest first."""
    ways = target_paths(targets, tree, targets_are)
    if form == "lifted":
        logs = ways.nodes.leaf_log_sums(logits.log_softmax(dim=1))
        losses = -logs.gather(1, ways.path)
    else:
        logs = level_log_softmax(logits, tree.level_sizes)
        losses = -logs.gather(1, class_columns(tree, targets.device)[ways.some_class])
    if count == "nodes" or targets_are == "nodes":
        losses = losses * ways.on_path
    return losses.mean(dim=0)


def soft_labels(
    logits: Tensor,
    targets: Tensor,
    tree: Hierarchy,
    *,
    beta: float = 10.0,
    reduction: Literal["batchmean", "mean"] = "batchmean",
    targets_are: TargetsAre = "classes",
) -> Tensor:
    """Return the KL divergence of softmax(x) from the target t_y(c) = exp(-beta D(y, c) / max D) / Z_y.

    D depends on c only through the node where the paths of y and c part, so t_y is a number per node of y's path, and
    no [K, K] table is needed. With v(n) = exp(-beta D(n) / max D), D(n) the distance of classes that part at n:

        sum_c t_y(c) log p(c) = 1 / Z_y  sum_n (v(n) - v(parent of n))  sum_{c below n} log p(c),

    n along y's path with the root, above which v is 0.

    Args:
        logits: [B, K].
        targets: [B] classes.
        tree: over the K classes.
        beta: decay of the targets, one-hot for large values.
        reduction: "mean" divides by K, too, as the published code does.
        targets_are: "classes".

    Reference: Bertinetto et al., Making Better Mistakes, CVPR 2020, section 3.2.
    """
    refuse_nodes("soft_labels", targets_are)
    check_batch("soft_labels", logits, tree.num_classes, targets)
    nodes = nodes_on(tree, targets.device)
    counts_by_class, largest = _parting_counts(tree, targets.device)
    sums = nodes.leaf_sums(logits.log_softmax(dim=1))
    path = F.pad(nodes.paths[targets], (1, 0))  # [B, L + 1]; filled with the class, which adds nothing
    counts = counts_by_class[targets]
    logs = -beta / largest * nodes.distance[path].to(logits.dtype)
    normaliser = (counts * logs.exp()).sum(dim=1, keepdim=True)
    soft = logs.exp() / normaliser  # the target probability of one class that parts at the node
    negentropy = (counts * soft * (logs - normaliser.log())).sum(dim=1)
    steps = torch.diff(soft, dim=1, prepend=torch.zeros_like(soft[:, :1]))
    divergence = (negentropy - (steps * sums.gather(1, path)).sum(dim=1)).mean()
    return divergence / (tree.num_classes if reduction == "mean" else 1)


@lru_cache(maxsize=8)
def _parting_counts(tree: Hierarchy, device: torch.device) -> tuple[Tensor, int]:
    """Return [K, L + 1] how many paths part from a class's at each node of its way, and the largest distance."""
    nodes = nodes_on(tree, device)
    sizes = nodes.num_leaves[F.pad(nodes.paths, (1, 0))]
    lone = [int(distances[0]) for distances in tree.node_distances if len(distances) == 1]  # nodes above all classes
    largest = min([tree.height, *lone])
    return sizes - F.pad(sizes[:, 1:], (0, 1)), largest


def hxe(
    logits: Tensor,
    targets: Tensor,
    tree: Hierarchy,
    *,
    alpha: float = 0.1,
    weights: Literal["depth", "height"] = "depth",
    normalised: bool = False,
    targets_are: TargetsAre = "classes",
) -> Tensor:
    """Return the mean over the batch of the sum over the target's path of lambda(n) (log p(parent of n) - log p(n)).

    Args:
        logits: [B, K]; p(n) sums softmax(x) below n.
        targets: [B].
        tree: over the K classes.
        alpha: of lambda(n) = exp(-alpha h(n)); 0 gives cross-entropy.
        weights: h, the "depth" of a node, 1 below the root, or its "height", 0 for a class.
        normalised: divide by the sum of lambda over all nodes, the root included, as the published code does.
        targets_are: "classes", or "nodes" of the tree.

    Reference: Bertinetto et al., Making Better Mistakes, CVPR 2020, section 3.1.
    """
    check_batch("hxe", logits, tree.num_classes, targets)
    ways = target_paths(targets, tree, targets_are)
    sums = ways.nodes.leaf_log_sums(logits)  # log p of each node, up to the same constant
    along = sums.gather(1, ways.way)  # an edge from a target to itself adds 0
    edges = _edge_weights(tree, alpha, weights, logits.dtype, logits.device)[ways.path] * (along[:, :-1] - along[:, 1:])
    mean = edges.sum(dim=1).mean()
    if not normalised:
        return mean
    counts = ways.nodes.depth_sizes if weights == "depth" else ways.nodes.height_sizes
    return mean / math.fsum(number * math.exp(-alpha * steps) for steps, number in enumerate(counts))


@lru_cache(maxsize=16)
def _edge_weights(
    tree: Hierarchy, alpha: float, weights: Literal["depth", "height"], dtype: torch.dtype, device: torch.device
) -> Tensor:
    """Return lambda [N] of all nodes."""
    nodes = nodes_on(tree, device)
    steps = nodes.depth if weights == "depth" else nodes.height
    return torch.exp(-alpha * steps.to(dtype))


def flamingo(
    logits: Sequence[Tensor], targets: Tensor, tree: Hierarchy, *, targets_are: TargetsAre = "classes"
) -> Tensor:
    """Return the sum of the levels' cross-entropies.

    Args:
        logits: of each level, coarsest first, [B, level_sizes[l]], as of `hierbench.heads.FlamingoHeads`.
        targets: [B]; levels below a target that is a node do not count.
        tree: over the classes.
        targets_are: "classes", or "nodes" of the tree.

    Reference: Chang et al., Your Flamingo is My Bird, CVPR 2021.
    """
    if len(logits) != tree.num_levels:
        raise InputError(f"flamingo takes logits of each of the {tree.num_levels} levels, not of {len(logits)}")
    for part, size in zip(logits, tree.level_sizes, strict=True):
        check_batch("flamingo", part, size, targets)
    return torch.stack(level_losses(logits, targets, tree, targets_are)).sum()


def level_losses(
    logits: Sequence[Tensor], targets: Tensor, tree: Hierarchy, targets_are: TargetsAre = "classes"
) -> list[Tensor]:
    """Return the cross-entropy of each level, coarsest first; arguments as for `flamingo`."""
    ways = target_paths(targets, tree, targets_are)
    targets_at = level_targets_on(tree, targets.device)[ways.some_class].unbind(dim=1)
    if targets_are == "classes":
        return list(map(F.cross_entropy, logits, targets_at))
    masks = ways.on_path.unbind(dim=1)
    return [
        (F.cross_entropy(part, at_level, reduction="none") * mask).mean()
        for part, at_level, mask in zip(logits, targets_at, masks, strict=True)
    ]


@lru_cache(maxsize=8)
def level_targets_on(tree: Hierarchy, device: torch.device) -> Tensor:
    """Return the tree's `level_targets` [K, L] on a device."""
    return torch.tensor(tree.level_targets, device=device)
