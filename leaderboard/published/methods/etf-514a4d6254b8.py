"""Fixed ETF: a classifier that is a simplex equiangular tight frame from the start, and a loss without push terms."""

import math
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hierbench import Hierarchy, Method, hyperparameter
from hierbench.losses.frames import random_simplex

MIN_LENGTH = 1e-30  # of a length that is divided by


class ETF(Method):
    """Logits c m_k . h with fixed unit vectors m_k of equal cosines, for features h of unit length.

    Dot regression: (c m_y . h - c |h|)^2 / (2 c |h|), averaged, |h| without gradient; its gradient only pulls h towards
    m_y. c is sqrt(E_W) and |h| is sqrt(E_H) of the paper, whose constraint on the lengths of features is |h| = 1 here.

    A simplex of K vectors needs K - 1 dimensions. If there are fewer features, or with `linear`, a learnable linear
    layer maps them to K. The layer absorbs any rotation, so the simplex is then e_k - 1 / K, scaled.

    Shapes: B batch, D features, K classes.
    """

    name = "etf"
    title = "fixed ETF"
    source = "Yang et al., Inducing Neural Collapse in Imbalanced Learning, NeurIPS 2022: simplex ETF, dot regression"

    class Params(Method.Params):
        """The loss; length: c; features: what is done to them; linear: whether a linear layer always precedes.

        "l2" normalises the features' lengths, which the paper fixes. The published code has a batch norm: its CIFAR
        model is "bn_l2", its ImageNet model "bn", where |h| stands for sqrt(E_H) and varies. "plain" has neither.
        """

        loss: Literal["dot_regression", "cross_entropy"] = "dot_regression"
        length: float = hyperparameter(1.0, low=0.01, high=100.0, grid=(1.0, 4.0, 16.0))
        features: Literal["l2", "bn_l2", "bn", "plain"] = "l2"
        linear: bool = False

    params: Params
    frame: Tensor | None

    def __init__(self, hierarchy: Hierarchy, num_features: int, params: Any = None) -> None:
        super().__init__(hierarchy, num_features, params)
        num_classes = hierarchy.num_classes
        self.linear: nn.Linear | None = None
        if self.params.linear or num_features < num_classes - 1:
            self.linear = nn.Linear(num_features, num_classes)
            self.register_buffer("frame", None)
        else:
            frame = random_simplex(num_classes, num_features).to(torch.get_default_dtype())
            self.register_buffer("frame", frame)
        width = num_features if self.linear is None else num_classes
        self.norm = nn.BatchNorm1d(width) if self.params.features.startswith("bn") else None

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logits [B, K] and the lengths |h| [B] of features [B, D]."""
        if self.linear is not None:
            features = self.linear(features)
        if self.norm is not None:
            features = self.norm(features)
        if self.params.features.endswith("l2"):
            features = F.normalize(features, dim=1)
        lengths = torch.linalg.vector_norm(features.detach(), dim=1)
        if self.frame is not None:
            return F.linear(features * self.params.length, self.frame), lengths
        size = float(self.hierarchy.num_classes)
        scale = self.params.length * math.sqrt(size / (size - 1.0))
        return (features - features.mean(dim=1, keepdim=True)) * scale, lengths

    def loss(self, outputs: tuple[Tensor, Tensor], targets: Tensor) -> dict[str, Tensor]:
        """Return the mean dot regression, or cross-entropy, for targets [B]."""
        logits, lengths = outputs
        if self.params.loss == "cross_entropy":
            return {"cross_entropy": F.cross_entropy(logits, targets)}
        longest = lengths * self.params.length
        # Rounding changes the rows' lengths, which is visible when a float32 model is converted to float64.
        rounded = 1.0 if self.frame is None else torch.linalg.vector_norm(self.frame[targets], dim=1)
        errors = logits.gather(1, targets[:, None]).squeeze(1) - longest * rounded
        return {"dot_regression": (errors.square() / (2.0 * longest).clamp_min(MIN_LENGTH)).mean()}

    def scores(self, outputs: tuple[Tensor, Tensor]) -> Tensor:
        """Return the logits [B, K]."""
        return outputs[0]
