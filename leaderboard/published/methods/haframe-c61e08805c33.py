"""HAFrame: a fixed classifier whose cosines follow the hierarchy, and features that align with it."""

from typing import Any

import torch
from torch import Tensor

from hierbench import Hierarchy, Method, hyperparameter
from hierbench.hierarchy import distances_from
from hierbench.losses.frames import (
    Mode,
    frame_of_tree,
    frame_outputs,
    frame_terms,
    hierarchy_aware_frame,
    minimum_similarity,
)

__all__ = [
    "HAFrame",
    "Mode",
    "hierarchy_aware_frame",
    "minimum_similarity",
]


class HAFrame(Method):
    """Logits W h with a fixed frame W; loss (1 - alpha) cross-entropy + alpha sum_i (cos(w_i, h) - S_iy)^2."""

    name = "haframe"
    title = "HAFrame"
    source = "Liang & Davis, ICCV 2023, equations 2 to 9"
    types = ("type-II",)

    class Params(Method.Params):
        """alpha weighs the losses, gamma spaces the classes, s_min is how the smallest cosine is chosen."""

        alpha: float = hyperparameter(0.4, low=0.0, high=1.0, grid=(0.3, 0.4, 0.5, 0.6))
        gamma: float = hyperparameter(3.0, low=0.1, high=20.0, grid=(1.0, 2.0, 3.0, 4.0, 5.0))
        s_min: Mode = "paper"

    frame: Tensor
    cosines: Tensor  # [height + 1], S at each distance
    params: Params

    def __init__(self, hierarchy: Hierarchy, num_features: int, params: Any = None) -> None:
        super().__init__(hierarchy, num_features, params)
        if num_features != hierarchy.num_classes:
            raise ValueError(f"haframe needs as many features as classes ({hierarchy.num_classes}), got {num_features}")
        seed = int(torch.randint(2**62, ()))  # from the global generator, which the run has seeded
        frame, cosines = frame_of_tree(hierarchy, self.params.gamma, self.params.s_min, seed, torch.get_default_dtype())
        self.register_buffer("frame", frame)
        self.register_buffer("cosines", cosines, persistent=False)

    def similarity(self, classes: Tensor) -> Tensor:
        """Return the rows [B, K] of S for classes [B]; they are looked up, S is not stored."""
        return self.cosines[distances_from(classes, self.hierarchy)]

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits [B, K] and cosines [B, K] for features [B, K]."""
        return frame_outputs(features, self.frame)

    def loss(self, outputs: tuple[Tensor, Tensor], targets: Tensor) -> dict[str, Tensor]:
        """Return the two weighted terms for targets [B] (equations 8 and 9)."""
        return frame_terms(outputs, targets, self.hierarchy, self.cosines, self.params.alpha)

    def scores(self, outputs: tuple[Tensor, Tensor]) -> Tensor:
        """Return the logits [B, K]; cosines would rank the same."""
        return outputs[0]
