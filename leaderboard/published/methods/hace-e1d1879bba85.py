"""HACE, hierarchy-aware cross-entropy: a softmax over all nodes, and a target that falls off from the class upwards."""

from typing import Any

from torch import Tensor, nn

from hierbench import Hierarchy, Method, hyperparameter
from hierbench.hierarchy import Nodes
from hierbench.losses import hace


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

    def __init__(self, hierarchy: Hierarchy, num_features: int, params: Any = None) -> None:
        super().__init__(hierarchy, num_features, params)
        self.nodes = Nodes(hierarchy)
        self.classifier = nn.Linear(num_features, self.nodes.num_nodes)

    def forward(self, features: Tensor) -> Tensor:
        """Return logits [B, N] of all nodes for features [B, D]."""
        logits: Tensor = self.classifier(features)
        return logits

    def loss(self, outputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """Return the mean loss for logits [B, N] and targets [B]."""
        loss = hace(outputs, targets, self.hierarchy, d=self.params.d, smoothing=self.params.smoothing)
        return {"hace": loss}

    def scores(self, outputs: Tensor) -> Tensor:
        """Return the logits of the classes, [B, K]."""
        return outputs[:, self.nodes.num_inner :]
