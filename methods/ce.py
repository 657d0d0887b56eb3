"""Cross-entropy: a linear classifier that ignores the hierarchy; the baseline."""

from typing import Any

from torch import Tensor, nn

from hierbench import Hierarchy, Method
from hierbench.losses import cross_entropy


class CrossEntropy(Method):
    """Flat softmax cross-entropy."""

    name = "ce"
    title = "cross-entropy"
    source = "Liang & Davis, ICCV 2023, section 4: the baseline of Tables 2 to 5"
    types = ("pooled", "type-I", "type-II")
    accepts_nodes = True

    def __init__(self, hierarchy: Hierarchy, num_features: int, params: Any = None) -> None:
        super().__init__(hierarchy, num_features, params)
        self.classifier = nn.Linear(num_features, hierarchy.num_classes)

    def forward(self, features: Tensor) -> Tensor:
        """Return logits [B, K] for features [B, D]."""
        logits: Tensor = self.classifier(features)
        return logits

    def loss(self, outputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """Return the mean cross-entropy of logits [B, K] with targets [B]."""
        return {"cross_entropy": cross_entropy(outputs, targets, self.hierarchy, targets_are=self.targets_are)}

    def scores(self, outputs: Tensor) -> Tensor:
        """Return the logits [B, K]."""
        return outputs
