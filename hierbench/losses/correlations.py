"""Regularisers of features: a cophenetic correlation of their distances with path lengths in the tree.

Shapes: B batch, D features, M nodes with examples in the batch.
"""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from hierbench.hierarchy.label_tree import Hierarchy
from hierbench.hierarchy.levels import nodes_on
from hierbench.losses.node_targets import TargetsAre, check_batch, refuse_nodes

NodeKind = Literal["classes", "all"]
PairDistance = Literal["means", "fft"]
BALL_MARGIN = {torch.float64: 1e-5}  # between a point and the unit sphere; of shorter types 4e-3


def cpcc(
    features: Tensor,
    targets: Tensor,
    tree: Hierarchy,
    *,
    nodes: NodeKind = "classes",
    distance: PairDistance = "means",
    targets_are: TargetsAre = "classes",
) -> Tensor:
    """Return 1 - r, r the cophenetic correlation coefficient of a batch; to be added to another loss.

    r is Pearson's correlation, over the pairs of nodes with examples in the batch, of the distance of their mean
    features with the number of edges between them. Where all path lengths of a batch are equal, or all features, r = 0
    without a gradient.

    Args:
        features: [B, D].
        targets: [B] classes.
        tree: over the classes.
        nodes: "classes", a class above the deepest level at its own place; "all", also the nodes above them.
        distance: "means"; or "fft", the mean distance of the examples of one node from those of the other under a plan
            of transport that takes both in the order of the batch (Fast FlowTree; Zeng et al., ICLR 2025).
        targets_are: "classes".

    Reference: Zeng et al., Learning Structured Representations by Embedding Class Hierarchy, ICLR 2023, section 3.
    """
    refuse_nodes("cpcc", targets_are)
    check_batch("cpcc", features, None, targets)
    indices, members = members_of(features, targets, tree, nodes)
    points = mean_points(features, members)
    if distance == "fft":
        distances = flow_distances(euclidean(features), members, _most_nodes(tree, nodes))
    else:
        distances = euclidean(points)
    return 1.0 - correlation(distances, indices, members, tree)


def hypstructure(
    features: Tensor,
    targets: Tensor,
    tree: Hierarchy,
    *,
    nodes: NodeKind = "all",
    distance: PairDistance = "means",
    means: Literal["midpoints", "features"] = "midpoints",
    weight: float = 1.0,
    centre: float = 0.01,
    targets_are: TargetsAre = "classes",
) -> Tensor:
    """Return weight (1 - r) + centre |midpoint of all examples|; to be added to another loss.

    r is that of `cpcc` with Poincare distances. Features go into the unit ball by the exponential map at 0; the place
    of a node is the Einstein midpoint of its examples, as in the published commands. With `means = "features"` it is
    the image of its mean feature, and the mean feature is centred.

    Reference: Sinha et al., Learning Structured Representations with Hyperbolic Embeddings, NeurIPS 2024, section 3.
    """
    refuse_nodes("hypstructure", targets_are)
    check_batch("hypstructure", features, None, targets)
    return weight * hyperbolic_decorrelation(features, targets, tree, nodes, distance, means) + centre * off_centre(
        features, means
    )


def hyperbolic_decorrelation(
    features: Tensor,
    targets: Tensor,
    tree: Hierarchy,
    nodes: NodeKind,
    distance: PairDistance,
    means: Literal["midpoints", "features"],
) -> Tensor:
    """Return 1 - r of `hypstructure`."""
    indices, members = members_of(features, targets, tree, nodes)
    if distance == "fft":
        each = torch.eye(len(targets), device=members.device, dtype=members.dtype)
        distances = flow_distances(poincare(ball_points(features, each, means)), members, _most_nodes(tree, nodes))
    else:
        distances = poincare(ball_points(features, members, means))
    return 1.0 - correlation(distances, indices, members, tree)


def off_centre(features: Tensor, means: Literal["midpoints", "features"]) -> Tensor:
    """Return the distance from 0 of the mean feature, or of the midpoint of all examples."""
    mean = features.mean(dim=0)
    if means == "midpoints":
        mean = midpoints(into_ball(features), torch.ones_like(features[None, :, 0]))[0]
    length: Tensor = mean.norm()
    return length


def _most_nodes(tree: Hierarchy, nodes: NodeKind) -> int:
    """Return the most nodes that an example lies at or below."""
    return 1 if nodes == "classes" else tree.num_levels + 1


def members_of(features: Tensor, targets: Tensor, tree: Hierarchy, nodes: NodeKind) -> tuple[Tensor, Tensor]:
    """Return M nodes, those with examples first, and [M, B] 1 where an example lies at or below the node.

    On a GPU M is the most that a batch of this size can have, so that the host need not wait for the number.
    """
    table = nodes_on(tree, targets.device)
    paths = F.pad(table.paths[targets], (1, 0))
    if nodes == "classes":
        paths = paths[:, -1:]
    below = torch.zeros(len(targets), table.num_nodes, device=targets.device).scatter(1, paths, 1.0)
    present = below.amax(dim=0)
    most = min(table.num_nodes, paths.numel()) if present.is_cuda else int(present.sum())
    indices = present.argsort(descending=True, stable=True)[:most]
    return indices, below[:, indices].t().to(features)


def mean_points(features: Tensor, members: Tensor) -> Tensor:
    """Return the mean features [M, D] of nodes, of features [B, D] and members [M, B]."""
    return members @ features / members.sum(dim=1, keepdim=True).clamp_min(1.0)


def correlation(distances: Tensor, indices: Tensor, members: Tensor, tree: Hierarchy) -> Tensor:
    """Return r of the distances [M, M] with the path lengths, over the pairs of nodes with examples."""
    nodes = nodes_on(tree, indices.device)
    first, second = torch.broadcast_tensors(indices[:, None], indices)
    depth = nodes.depth
    lengths = depth[first] + depth[second] - 2 * depth[nodes.common_ancestors(first, second)]
    present = members.amax(dim=1)
    pairs = (present[:, None] * present).triu(1)
    total = pairs.sum().clamp_min(1.0)
    centred, apart = (
        pairs * (values - (pairs * values).sum() / total) for values in (lengths.to(distances), distances)
    )
    scale = (centred.square().sum() * apart.square().sum()).clamp_min(1e-24).sqrt()
    return (centred * apart).sum() / scale


def euclidean(points: Tensor) -> Tensor:
    """Return the Euclidean distances [M, M] of points [M, D], exactly 0 for two in one place."""
    return torch.cdist(points, points, compute_mode="donot_use_mm_for_euclid_dist")


def flow_distances(distances: Tensor, members: Tensor, most: int) -> Tensor:
    """Return the distances [M, M] of nodes by Fast FlowTree.

    An example is the piece [(i - 1) / n, i / n] of its node, the i-th of n; what two pieces share flows between them.

    Args:
        distances: [B, B] of the examples.
        members: [M, B] 1 where an example lies at or below the node.
        most: of the nodes that an example lies below; where there are fewer, the other pieces have no length.
    """
    below = members.argsort(dim=0, descending=True, stable=True)[:most]
    examples = torch.arange(len(distances), device=members.device).expand_as(below).flatten()
    nodes = below.flatten()
    size = members.sum(dim=1)[nodes].clamp_min(1.0)
    end = members.cumsum(dim=1)[nodes, examples] / size
    start = end - members[nodes, examples] / size
    flow = (torch.minimum(end[:, None], end) - torch.maximum(start[:, None], start)).clamp_min(0.0)
    sums = members.new_zeros(len(members), len(nodes)).index_add(0, nodes, flow * distances[examples][:, examples])
    return members.new_zeros(len(members), len(members)).index_add(1, nodes, sums)


def poincare(points: Tensor) -> Tensor:
    """Return the hyperbolic distances [M, M] of points [M, D] of the unit ball."""
    inside = 1.0 - points.square().sum(dim=1)
    # 2 asinh is 2 artanh of the length of the Moebius difference, without its cancellation.
    distances: Tensor = 2.0 * torch.asinh(euclidean(points) / (inside[:, None] * inside).sqrt())
    return distances


def ball_points(features: Tensor, members: Tensor, means: Literal["midpoints", "features"]) -> Tensor:
    """Return the places [M, D] of nodes in the ball, of features [B, D] and members [M, B]."""
    if means == "features":
        return into_ball(mean_points(features, members))
    return midpoints(into_ball(features), members)


def into_ball(features: Tensor) -> Tensor:
    """Return the exponential map at 0 of features [B, D], curvature -1, not nearer to the sphere than the margin."""
    length = features.norm(dim=1, keepdim=True).clamp_min(1e-15)
    inside: Tensor = torch.tanh(length).clamp_max(1.0 - BALL_MARGIN.get(features.dtype, 4e-3)) * features / length
    return inside


def midpoints(points: Tensor, members: Tensor) -> Tensor:
    """Return the Einstein midpoints [M, D] of those points [B, D] of the ball that are members [M, B], 0 or 1."""
    klein = 2.0 * points / (1.0 + points.square().sum(dim=1, keepdim=True))
    factor = (1.0 - klein.square().sum(dim=1, keepdim=True)).rsqrt()
    middle = members @ (factor * klein) / (members @ factor).clamp_min(1.0)  # a factor is at least 1
    return middle / (1.0 + (1.0 - middle.square().sum(dim=1, keepdim=True)).sqrt())
