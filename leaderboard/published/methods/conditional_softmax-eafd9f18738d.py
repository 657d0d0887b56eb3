"""Conditional softmax: one softmax per group of siblings; a class's probability is the product along its path."""

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from hierbench import Hierarchy, Method
from hierbench.hierarchy import Nodes
from hierbench.losses.node_losses import path_likelihood


class ConditionalSoftmax(Method):
    """A logit per node below the root; loss -log p(y), log p(y) = sum over the path of log softmax among siblings.

    The published code of Bertinetto et al., who call it YOLO-v2, weighs each edge by 1 / N, N the number of nodes with
    the root, which makes the loss N times smaller: `normalised = True`.

    Shapes: B batch, D features, K classes, N nodes with the root, L levels.
    """

    name = "conditional_softmax"
    title = "conditional softmax"
    source = (
        "Redmon & Farhadi, YOLO9000: Better, Faster, Stronger, CVPR 2017, section 4, Hierarchical classification; "
        "as the baseline YOLO-v2 of Bertinetto et al., CVPR 2020"
    )

    class Params(Method.Params):
        """normalised: divide the loss by N."""

        normalised: bool = False

    params: Params

    def __init__(self, hierarchy: Hierarchy, num_features: int, params: Any = None) -> None:
        super().__init__(hierarchy, num_features, params)
        self.nodes = Nodes(hierarchy)
        self.classifier = nn.Linear(num_features, self.nodes.num_nodes - 1)

    def forward(self, features: Tensor) -> Tensor:
        """Return log-probabilities [B, N] of each node given its parent, 0 for the root, for features [B, D]."""
        return self.nodes.sibling_log_softmax(F.pad(self.classifier(features), (1, 0)))

    def loss(self, outputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """Return the negative log-likelihood for log-probabilities [B, N] and targets [B]."""
        loss = path_likelihood(outputs, targets, self.hierarchy, normalised=self.params.normalised)
        return {"cross_entropy": loss}

    def scores(self, outputs: Tensor) -> Tensor:
        """Return the classes' log-probabilities [B, K]."""
        return self.nodes.path_sums(outputs)
