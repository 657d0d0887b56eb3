"""Soft labels: the target is a distribution over all classes that decays with their distance from the true one."""

from typing import Any, Literal

from torch import Tensor, nn

from hierbench import Hierarchy, Method, hyperparameter
from hierbench.losses import soft_labels


class SoftLabels(Method):
    """KL divergence of softmax(x) from the target t_y(c) = exp(-beta D(y, c) / max D) / Z_y.

    The published code takes the mean over classes, too, which makes loss and gradient K times smaller:
    `reduction = "mean"`. The default is the mean over the batch alone, as in the paper. The code's batches also round
    the targets to float32.

    Shapes: B batch, D features, K classes, N nodes, L levels.
    """

    name = "soft_labels"
    title = "soft labels"
    source = "Bertinetto et al., Making Better Mistakes, CVPR 2020, section 3.2"

    class Params(Method.Params):
        """beta: decay of the targets, one-hot for large values; reduction: see the class."""

        beta: float = hyperparameter(10.0, low=0.0, high=1000.0, grid=(4.0, 10.0, 30.0))
        reduction: Literal["batchmean", "mean"] = "batchmean"

    params: Params

    def __init__(self, hierarchy: Hierarchy, num_features: int, params: Any = None) -> None:
        super().__init__(hierarchy, num_features, params)
        self.classifier = nn.Linear(num_features, hierarchy.num_classes)

    def forward(self, features: Tensor) -> Tensor:
        """Return logits [B, K] for features [B, D]."""
        logits: Tensor = self.classifier(features)
        return logits

    def loss(self, outputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """Return the divergence for logits [B, K] and targets [B]."""
        beta = self.params.beta
        loss = soft_labels(outputs, targets, self.hierarchy, beta=beta, reduction=self.params.reduction)
        return {"divergence": loss}

    def scores(self, outputs: Tensor) -> Tensor:
        """Return the logits [B, K]."""
        return outputs
