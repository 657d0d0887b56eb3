"""HXE, hierarchical cross-entropy: the class's log-probability, factorised along its path and weighted per edge."""

from typing import Any, Literal

from torch import Tensor, nn

from hierbench import Hierarchy, Method, hyperparameter
from hierbench.losses import hxe


class HXE(Method):
    """Sum over the target's path of lambda(n) (log p(parent of n) - log p(n)), where p(n) sums softmax(x) below n.

    lambda(n) = exp(-alpha h(n)). The paper calls h the height of a node, but says that lambda discounts information
    down the hierarchy, so that a larger alpha prefers coarse nodes, and its code takes the depth: that is the default,
    h = 1 below the root. `weights = "height"` reads the formula literally, h = 0 for a class, which prefers fine nodes.
    Both are cross-entropy for alpha = 0.

    The formula has no normaliser. The published code divides the weights by their sum over all nodes of the tree, the
    root included: `normalised = True`. That makes the loss 24 times smaller on CIFAR-100's tree for alpha = 0.4.
    The code also drops an edge if a softmax underflows to 0, and with it the worst mistakes; here log-probabilities
    come from log-sums.

    Shapes: B batch, D features, K classes, N nodes, L levels.
    """

    name = "hxe"
    title = "HXE"
    source = "Bertinetto et al., Making Better Mistakes, CVPR 2020, section 3.1"

    class Params(Method.Params):
        """alpha: decay of the weights; weights and normalised: see the class."""

        alpha: float = hyperparameter(0.1, low=0.0, high=10.0, grid=(0.1, 0.2, 0.4, 0.6))
        weights: Literal["depth", "height"] = "depth"
        normalised: bool = False

    params: Params

    def __init__(self, hierarchy: Hierarchy, num_features: int, params: Any = None) -> None:
        super().__init__(hierarchy, num_features, params)
        self.classifier = nn.Linear(num_features, hierarchy.num_classes)

    def forward(self, features: Tensor) -> Tensor:
        """Return logits [B, K] for features [B, D]."""
        logits: Tensor = self.classifier(features)
        return logits

    def loss(self, outputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """Return the weighted sum for logits [B, K] and targets [B]."""
        params = self.params
        loss = hxe(
            outputs,
            targets,
            self.hierarchy,
            alpha=params.alpha,
            weights=params.weights,
            normalised=params.normalised,
        )
        return {"hxe": loss}

    def scores(self, outputs: Tensor) -> Tensor:
        """Return the logits [B, K]."""
        return outputs
