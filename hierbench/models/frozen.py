"""Frozen backbones: the network that computes features once, and what stands for it where these are cached."""

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from hierbench.config.sections import Model
from hierbench.models.backbones import Backbone
from hierbench.models.libraries.lookup import build_backbone, count_channels, library_of
from hierbench.models.weights import load_weights


class CachedBackbone(nn.Module):
    """Stands for a frozen backbone: its inputs are pooled features [B, C], and so are its outputs.

    It has no parameters and nothing to save. `TypeI` and `TypeII` take pooled features in place of a map.
    """

    def __init__(
        self,
        num_channels: int,
        norm_momentum: float = 0.1,
        init_convolution: Callable[[nn.Conv2d], None] | None = None,
    ) -> None:
        super().__init__()
        self.num_channels, self.norm_momentum, self.init_convolution = num_channels, norm_momentum, init_convolution

    def forward(self, features: Tensor) -> Tensor:
        """Return the features [B, C]."""
        return features


def loaded_backbone(model: Model, weights: Path | None) -> Backbone:
    """Return the backbone with the weights of a file, or drawn from the global random generator.

    Raises:
        UserError: the weights do not match the backbone.
    """
    network = build_backbone(model)
    if weights is not None:
        load_weights(network, model, weights)
    return network


def cached_backbone(model: Model) -> CachedBackbone:
    """Return the stand-in for a backbone; no random number is drawn."""
    if library_of(model.backbone) is not None:
        return CachedBackbone(count_channels(model))
    with torch.device("meta"):  # only its attributes are needed
        own = build_backbone(model)
    return CachedBackbone(own.num_channels, own.norm_momentum, own.init_convolution)
