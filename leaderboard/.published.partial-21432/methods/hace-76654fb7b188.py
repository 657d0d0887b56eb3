"""HACE, hierarchy-aware cross-entropy: a softmax over all nodes, and a target that falls off from the class upwards."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from hierbench import Hierarchy, Method, hyperparameter
from hierbench.hierarchy import Nodes

ADDED_SHARE = 1e-6  # that is added to a probability before its logarithm


class HACE(Method):
    """- sum over nodes n of T(n, y) log(P(n) + 1e-6), P(n) the softmax over all nodes, summed at and below n.

    T(n, y) = d (1 - d)^j for the node j edges above the class y, and what is left for the root, whose P is 1. With
    d = 1 that is hierarchical cross-entropy (HCE). `smoothing` takes that share of the target evenly from all classes.

    The published code predicts the largest of all N logits, which may be an inner node's; classes alone are ranked
    here, by their own logits. With logits for classes alone, HACE would be HXE with the weight 1 - (1 - d)^(j + 1) on
    the edge at height j.

    Shapes: B batch, D features, K classes, N nodes with the root, L levels.
    """

    name = "hace"
    title = "HACE"
    source = (
        "Chan et al., arXiv 2605.06274, 2026; HCE: Cultrera di Montesano et al., Nature Computational Science 6, 2026"
    )

    class Params(Method.Params):
        """d, and the smoothing of labels: see the class."""

        d: float = hyperparameter(0.7, low=0.01, high=1.0, grid=(0.3, 0.5, 0.7, 0.9))
        smoothing: float = hyperparameter(0.0, low=0.0, high=0.99)

    params: Params
    weights: Tensor  # [K, L] T on the path of each class
    mean_weights: Tensor  # [N] the mean of T over the classes

    def __init__(self, hierarchy: Hierarchy, num_features: int, params: Any = None) -> None:
        super().__init__(hierarchy, num_features, params)
        self.nodes = Nodes(hierarchy)
        self.classifier = nn.Linear(num_features, self.nodes.num_nodes)
        d = self.params.d
        above = self.nodes.depth[self.nodes.num_inner :, None] - self.nodes.depth[self.nodes.paths]
        weights = torch.where(self.nodes.on_path, d * (1.0 - d) ** above.double(), 0.0)
        mean = torch.zeros(self.nodes.num_nodes, dtype=torch.float64)
        mean.index_add_(0, self.nodes.paths.flatten(), weights.flatten() / hierarchy.num_classes)
        self.register_buffer("weights", weights, persistent=False)
        self.register_buffer("mean_weights", mean, persistent=False)

    def forward(self, features: Tensor) -> Tensor:
        """Return logits [B, N] of all nodes for features [B, D]."""
        logits: Tensor = self.classifier(features)
        return logits

    def loss(self, outputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """Return the mean loss for logits [B, N] and targets [B]."""
        sums = self.nodes.subtree_log_sums(outputs.log_softmax(dim=1))
        logs = torch.logaddexp(sums, sums.new_full((), math.log(ADDED_SHARE)))
        share = self.params.smoothing
        per_class = (logs.gather(1, self.nodes.paths[targets]) * self.weights[targets].to(logs)).sum(dim=1)
        overall = logs @ self.mean_weights.to(logs)
        return {"hace": -((1.0 - share) * per_class + share * overall).mean()}

    def scores(self, outputs: Tensor) -> Tensor:
        """Return the logits of the classes, [B, K]."""
        return outputs[:, self.nodes.num_inner :]
