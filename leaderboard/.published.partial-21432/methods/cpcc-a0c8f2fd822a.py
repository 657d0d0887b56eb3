"""CPCC: cross-entropy, and a correlation of the distances of features with path lengths in the tree."""

from typing import Any, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from hierbench import Hierarchy, Method, hyperparameter
from hierbench.hierarchy import Nodes

Outputs = tuple[Tensor, Tensor]  # logits [B, K] and features [B, D]


class CPCC(Method):
    """Cross-entropy + weight (1 - r), r the cophenetic correlation coefficient of a batch.

    r is Pearson's correlation, over the pairs of nodes with examples in the batch, of the distance of their mean
    features with the number of edges between them. `nodes = "classes"` takes the classes alone, a class above the
    deepest level at its own place; "all" also the nodes above them, the root included. Where all path lengths of a
    batch are equal, or all features, r = 0 without a gradient.

    `distance = "fft"` is that of OT-CPCC by Fast FlowTree: the mean distance of the examples of one node from those of
    the other under a plan of transport, which takes both in the order of the batch (north-west corner of uniform
    weights), as through a tree all plans between two classes cost the same. Its code has classes alone.

    Shapes: B batch, D features, K classes, M nodes.
    """

    name = "cpcc"
    title = "CPCC"
    source = (
        "Zeng et al., Learning Structured Representations by Embedding Class Hierarchy, ICLR 2023, section 3; "
        'distance "fft": Zeng et al., the same with Fast Optimal Transport, ICLR 2025'
    )

    class Params(Method.Params):
        """weight of the correlation, lambda; nodes and distance: see the class."""

        weight: float = hyperparameter(1.0, low=0.0, high=100.0, grid=(0.1, 0.3, 1.0, 3.0))
        nodes: Literal["classes", "all"] = "classes"
        # Runs that are older than it have no value of it in their ids.
        distance: Literal["means", "fft"] = Field(default="means", exclude_if=lambda value: value == "means")

    params: Params

    def __init__(self, hierarchy: Hierarchy, num_features: int, params: Any = None) -> None:
        super().__init__(hierarchy, num_features, params)
        self.nodes = Nodes(hierarchy)
        self.classifier = nn.Linear(num_features, hierarchy.num_classes)

    def forward(self, features: Tensor) -> Outputs:
        """Return logits [B, K] and the features [B, D] themselves."""
        return self.classifier(features), features

    def loss(self, outputs: Outputs, targets: Tensor) -> dict[str, Tensor]:
        """Return the cross-entropy and the weighted 1 - r for logits and features, and targets [B]."""
        logits, features = outputs
        nodes, members = self._members(targets)
        points = self.points(features, members)
        distances = self.distances(points)
        if self.params.distance == "fft":
            examples = self.points(features, torch.eye(len(targets)).to(members))
            distances = flow_distances(self.distances(examples), members)
        correlation = self._correlation(distances, nodes, members)
        return {
            "cross_entropy": F.cross_entropy(logits, targets),
            "correlation": self.params.weight * (1.0 - correlation),
            **self.further_terms(features, points),
        }

    def scores(self, outputs: Outputs) -> Tensor:
        """Return the logits [B, K]."""
        return outputs[0]

    def points(self, features: Tensor, members: Tensor) -> Tensor:
        """Return the mean features [M, D] of nodes, of features [B, D] and members [M, B]."""
        return members @ features / members.sum(dim=1, keepdim=True).clamp_min(1.0)

    def distances(self, points: Tensor) -> Tensor:
        """Return the distances [M, M] of points [M, D]."""
        return euclidean(points)

    def further_terms(self, features: Tensor, points: Tensor) -> dict[str, Tensor]:
        """Return loss terms beside the two."""
        return {}

    def _members(self, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return M nodes, those with examples first, and [M, B] 1 where an example lies at or below the node.

        On a GPU M is the most that a batch of this size can have, so that the host need not wait for the number.
        """
        paths = F.pad(self.nodes.paths[targets], (1, 0))
        if self.params.nodes == "classes":
            paths = paths[:, -1:]
        below = torch.zeros(len(targets), self.nodes.num_nodes, device=targets.device).scatter(1, paths, 1.0)
        present = below.amax(dim=0)
        most = min(self.nodes.num_nodes, paths.numel()) if present.is_cuda else int(present.sum())
        nodes = present.argsort(descending=True, stable=True)[:most]
        return nodes, below[:, nodes].t().to(self.classifier.weight)

    def _correlation(self, distances: Tensor, nodes: Tensor, members: Tensor) -> Tensor:
        """Return r of the distances [M, M] with the path lengths, over the pairs of nodes with examples."""
        first, second = torch.broadcast_tensors(nodes[:, None], nodes)
        depth = self.nodes.depth
        lengths = depth[first] + depth[second] - 2 * depth[self.nodes.common_ancestors(first, second)]
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


def flow_distances(distances: Tensor, members: Tensor) -> Tensor:
    """Return the distances [M, M] of nodes by Fast FlowTree, of those of examples [B, B] and members [M, B].

    An example is the piece [(i - 1) / n, i / n] of its node, the i-th of n; what two pieces share flows between them.
    """
    nodes, examples = members.nonzero(as_tuple=True)
    size = members.sum(dim=1)[nodes]
    end = members.cumsum(dim=1)[nodes, examples] / size
    start = end - 1.0 / size
    flow = (torch.minimum(end[:, None], end) - torch.maximum(start[:, None], start)).clamp_min(0.0)
    sums = members.new_zeros(len(members), len(nodes)).index_add(0, nodes, flow * distances[examples][:, examples])
    return members.new_zeros(len(members), len(members)).index_add(1, nodes, sums)
