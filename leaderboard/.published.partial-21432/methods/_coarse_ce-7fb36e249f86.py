"""Cross-entropy over the parents of the classes: the coarse network of HiE, a base that is no row of its own."""

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hierbench import Hierarchy, Method
from hierbench.hierarchy import Nodes


class CoarseCrossEntropy(Method):
    """A linear classifier over the P parents of classes, trained on the parents' labels alone.

    The root is one of the parents if a class is directly below it. A parent's probability is divided equally among its
    classes, so that the probabilities of these add up to it. Shapes: B batch, D features, K classes, P parents.
    """

    name = "_coarse_ce"
    title = "coarse cross-entropy"
    source = "Jain et al., Test-Time Amendment with a Coarse Classifier for Fine-Grained Classification, NeurIPS 2023"

    parent: Tensor
    num_children: Tensor

    def __init__(self, hierarchy: Hierarchy, num_features: int, params: Any = None) -> None:
        super().__init__(hierarchy, num_features, params)
        nodes = Nodes(hierarchy)
        _, parent, children = nodes.parent[nodes.num_inner :].unique(return_inverse=True, return_counts=True)
        self.register_buffer("parent", parent, persistent=False)  # [K]
        self.register_buffer("num_children", children[parent], persistent=False)  # [K], classes of the class's parent
        self.classifier = nn.Linear(num_features, len(children))

    def forward(self, features: Tensor) -> Tensor:
        """Return the parents' logits [B, P] for features [B, D]."""
        logits: Tensor = self.classifier(features)
        return logits

    def loss(self, outputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """Return the mean cross-entropy of logits [B, P] with the parents of targets [B]."""
        return {"cross_entropy": F.cross_entropy(outputs, self.parent[targets])}

    def merit(self, metrics: Mapping[str, float]) -> float:
        """Return minus HierDist@1: a parent's classes tie, so top-1 accuracy would count only the first of them."""
        return -metrics["hierdist@1"]

    def scores(self, outputs: Tensor) -> Tensor:
        """Return log-probabilities [B, K]: log p(parent of c) - log(number of classes below that parent)."""
        logs = torch.log_softmax(outputs, dim=1).index_select(1, self.parent)
        return logs - self.num_children.to(logs).log()
