"""HXE, hierarchical cross-entropy: the class's log-probability, factorised along its path and weighted per edge."""

from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hierbench import Hierarchy, Method, hyperparameter
from hierbench.hierarchy import Nodes


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
        self.nodes = Nodes(hierarchy)
        self.classifier = nn.Linear(num_features, hierarchy.num_classes)
        self.total = float(self._weights(torch.arange(self.nodes.num_nodes), torch.float64).sum())

    def _weights(self, nodes: Tensor, dtype: torch.dtype) -> Tensor:
        """Return lambda of nodes of any shape, not normalised."""
        steps = self.nodes.depth if self.params.weights == "depth" else self.nodes.height
        return torch.exp(-self.params.alpha * steps[nodes].to(dtype))

    def forward(self, features: Tensor) -> Tensor:
        """Return logits [B, K] for features [B, D]."""
        logits: Tensor = self.classifier(features)
        return logits

    def loss(self, outputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """Return the weighted sum for logits [B, K] and targets [B]."""
        sums = self.nodes.leaf_log_sums(outputs)  # log p of each node, up to the same constant
        path = self.nodes.paths[targets]  # filled with the class: an edge from it to itself adds 0
        along = sums.gather(1, F.pad(path, (1, 0)))
        edges = self._weights(path, outputs.dtype) * (along[:, :-1] - along[:, 1:])
        scale = self.total if self.params.normalised else 1.0
        return {"hxe": edges.sum(dim=1).mean() / scale}

    def scores(self, outputs: Tensor) -> Tensor:
        """Return the logits [B, K]."""
        return outputs
