"""Losses of logits for nodes.

Shapes: B batch, K classes, N nodes with the root, L levels.
"""

import math
from functools import lru_cache
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from hierbench.hierarchy.label_tree import Hierarchy
from hierbench.hierarchy.levels import nodes_on
from hierbench.losses.node_targets import TargetPaths, TargetsAre, check_batch, target_paths

ADDED_SHARE = 1e-6  # that HACE adds to a probability before its logarithm


def conditional_softmax(
    logits: Tensor,
    targets: Tensor,
    tree: Hierarchy,
    *,
    normalised: bool = False,
    targets_are: TargetsAre = "classes",
) -> Tensor:
    """Return the mean of -log p(y), log p(y) the sum over the path of log softmax among siblings.

    Args:
        logits: [B, N - 1], of each node below the root.
        targets: [B].
        tree: over the K classes.
        normalised: divide by N, as the published code of Bertinetto et al. does.
        targets_are: "classes", or "nodes" of the tree.

    Reference: Redmon & Farhadi, YOLO9000, CVPR 2017, section 4.
    """
    nodes = nodes_on(tree, logits.device)
    check_batch("conditional_softmax", logits, nodes.num_nodes - 1, targets)
    logs = nodes.sibling_log_softmax(F.pad(logits, (1, 0)))
    return path_likelihood(logs, targets, tree, normalised=normalised, targets_are=targets_are)


def path_likelihood(
    logs: Tensor, targets: Tensor, tree: Hierarchy, *, normalised: bool = False, targets_are: TargetsAre = "classes"
) -> Tensor:
    """Return `conditional_softmax` of log-probabilities [B, N] of each node given its parent."""
    ways = target_paths(targets, tree, targets_are)
    log_likelihood = (logs.gather(1, ways.path) * ways.on_path).sum(dim=1)
    return -log_likelihood.mean() / (ways.nodes.num_nodes if normalised else 1)


def descendant_softmax(
    logits: Tensor,
    targets: Tensor,
    tree: Hierarchy,
    *,
    form: Literal["cousins", "root", "sharing"] = "cousins",
    targets_are: TargetsAre = "classes",
) -> Tensor:
    """Return the mean over the batch of the sum over the target's path of w(n) (log Z(n) - x(n)).

    w(n) = 1 / classes below n, rounded to float32 as in the published code. E(n) is the log of the sum of exp(x) over n
    and all nodes below. `form` says what a node competes with:

    - "cousins", the paper's soft-max-descendant: Z(n) sums over n and every node that is neither above nor below it, so
      that the path's nodes do not compete with each other; the root's term is 0.
    - "root": Z(n) = exp(E(root)), all nodes; the root has a term, too.
    - "sharing", the paper's parameter sharing: cross-entropy of a flat softmax over the sums of the logits along each
      class's path; without weights.

    Args:
        logits: [B, N], the root's first.
        targets: [B].
        tree: over the K classes.
        form: see above.
        targets_are: "classes", or "nodes" of the tree.

    Reference: Valmadre, Hierarchical classification at multiple operating points, NeurIPS 2022.
    """
    nodes = nodes_on(tree, logits.device)
    check_batch("descendant_softmax", logits, nodes.num_nodes, targets)
    ways = target_paths(targets, tree, targets_are)
    if form == "sharing":
        sums = nodes.path_sums(logits)
        if targets_are == "classes":
            return F.cross_entropy(sums, targets)
        return -nodes.leaf_log_sums(sums.log_softmax(dim=1)).gather(1, ways.node[:, None]).mean()
    sums = nodes.subtree_log_sums(logits)
    shares = _leaf_shares(tree, logits.device)
    weights = shares[ways.path] * ways.on_path
    path_outputs = logits.gather(1, ways.path)
    if form == "root":
        root = shares[0] * (sums[:, 0] - logits[:, 0])
        return ((weights * (sums[:, :1] - path_outputs)).sum(dim=1) + root).mean()
    margins = _cousins(sums, ways) - path_outputs
    return -(weights * F.logsigmoid(-margins)).sum(dim=1).mean()


@lru_cache(maxsize=8)
def _leaf_shares(tree: Hierarchy, device: torch.device) -> Tensor:
    """Return [N] float32, 1 / classes below each node."""
    return 1.0 / nodes_on(tree, device).num_leaves.float()


def _cousins(sums: Tensor, ways: TargetPaths) -> Tensor:
    """Return [B, L]: for each node of a path, the log-sum over all nodes neither above nor below it.

    These are the subtrees, with log-sums [B, N], of the siblings of the node and of those above it: of children of the
    nodes above that are not on the path themselves.
    """
    beside = ways.nodes.child_log_sums(sums.scatter(1, ways.path, -torch.inf))
    above = F.pad(ways.path[:, :-1], (1, 0))
    lowest = torch.finfo(sums.dtype).min  # without siblings there is nothing beside the path
    at_depth = beside.gather(1, above * ways.on_path).masked_fill(~ways.on_path, -torch.inf).clamp_min(lowest)
    return at_depth.logcumsumexp(dim=1)


def hace(
    logits: Tensor,
    targets: Tensor,
    tree: Hierarchy,
    *,
    d: float = 0.7,
    smoothing: float = 0.0,
    targets_are: TargetsAre = "classes",
) -> Tensor:
    """Return the mean of - sum over nodes n of T(n, y) log(P(n) + 1e-6).

    P(n) is the softmax over all nodes, summed at and below n. T(n, y) = d (1 - d)^j for the node j edges above the
    target y, and what is left for the root, whose P is 1.

    Args:
        logits: [B, N], the root's first.
        targets: [B].
        tree: over the K classes.
        d: share of the target itself; 1 gives hierarchical cross-entropy.
        smoothing: share of the target that is taken evenly from all classes.
        targets_are: "classes", or "nodes" of the tree.

    Reference: Chan et al., arXiv 2605.06274, 2026.
    """
    check_batch("hace", logits, nodes_on(tree, logits.device).num_nodes, targets)
    ways = target_paths(targets, tree, targets_are)
    sums = ways.nodes.subtree_log_sums(logits.log_softmax(dim=1))
    logs = torch.logaddexp(sums, sums.new_full((), math.log(ADDED_SHARE)))
    above = ways.nodes.depth[ways.node, None] - ways.nodes.depth[ways.path]
    shares, mean_target = _hace_tables(tree, d, logs.dtype, logs.device)
    weights = torch.where(ways.on_path, shares[above], 0.0)
    per_class = (logs.gather(1, ways.path) * weights).sum(dim=1)
    overall = logs @ mean_target
    return -((1.0 - smoothing) * per_class + smoothing * overall).mean()


@lru_cache(maxsize=8)
def _hace_tables(tree: Hierarchy, d: float, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return T by the number of edges above the target, [L + 1], and its mean over the classes, [N]."""
    nodes = nodes_on(tree, torch.device("cpu"))
    shares = d * (1.0 - d) ** torch.arange(tree.num_levels + 1).double()
    above = nodes.depth[nodes.num_inner :, None] - nodes.depth[nodes.paths]
    weights = torch.where(nodes.on_path, shares[above], 0.0)
    mean = torch.zeros(nodes.num_nodes, dtype=torch.float64)
    mean.index_add_(0, nodes.paths.flatten(), weights.flatten() / tree.num_classes)
    return shares.to(dtype).to(device), mean.to(dtype).to(device)
