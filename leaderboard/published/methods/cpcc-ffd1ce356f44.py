"""CPCC: cross-entropy, and a correlation of the distances of features with path lengths in the tree."""

from typing import Any, Literal

import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from hierbench import Hierarchy, Method, hyperparameter
from hierbench.losses import cpcc

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
        # "means" is left out of a run's id: the ids of runs from before "fft" stay.
        distance: Literal["means", "fft"] = Field(default="means", exclude_if=lambda value: value == "means")

    params: Params

    def __init__(self, hierarchy: Hierarchy, num_features: int, params: Any = None) -> None:
        super().__init__(hierarchy, num_features, params)
        self.classifier = nn.Linear(num_features, hierarchy.num_classes)

    def forward(self, features: Tensor) -> Outputs:
        """Return logits [B, K] and the features [B, D] themselves."""
        return self.classifier(features), features

    def loss(self, outputs: Outputs, targets: Tensor) -> dict[str, Tensor]:
        """Return the cross-entropy and the weighted 1 - r for logits and features, and targets [B]."""
        logits, features = outputs
        apart = cpcc(features, targets, self.hierarchy, nodes=self.params.nodes, distance=self.params.distance)
        return {"cross_entropy": F.cross_entropy(logits, targets), "correlation": self.params.weight * apart}

    def scores(self, outputs: Outputs) -> Tensor:
        """Return the logits [B, K]."""
        return outputs[0]
