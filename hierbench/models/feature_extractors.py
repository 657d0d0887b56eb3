"""Penultimate feature extractors: from a feature map [B, C, h, w] to features [B, D].

Reference: Liang & Davis, ICCV 2023, sections 3.3 and 4 ("Training Configurations").
"""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

Pool = Literal["average", "max"]


def at_least_float32(tensor: Tensor) -> Tensor:
    """Return a floating-point tensor in float32, or unchanged if it is more precise."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


class TypeI(nn.Module):
    """Pool, batch norm, linear layer, batch norm, ELU.

    Args:
        num_channels: C.
        num_features: D, width of the layer; 0 omits the layer and its norms, so D = C (docs/protocols.md, row 12), as
            for the type "pooled", on which cross-entropy is a linear probe.
        pool: "average" or "max" over the whole map (docs/protocols.md, row 11).
    """

    def __init__(self, num_channels: int, num_features: int = 600, pool: Pool = "average") -> None:
        super().__init__()
        self.num_features = num_features or num_channels
        self.pool = nn.AdaptiveMaxPool2d(1) if pool == "max" else nn.AdaptiveAvgPool2d(1)
        self.transform = nn.Sequential()
        if num_features:
            self.transform = nn.Sequential(
                nn.BatchNorm1d(num_channels),
                nn.Linear(num_channels, num_features),
                nn.BatchNorm1d(num_features),
                nn.ELU(inplace=True),
            )

    def forward(self, feature_map: Tensor) -> Tensor:
        """Map a feature map [B, C, h, w], or pooled features [B, C], to [B, D]."""
        pooled = feature_map if feature_map.ndim == 2 else self.pool(feature_map).flatten(1)
        features: Tensor = self.transform(pooled)
        return features


class ResidualBlock(nn.Module):
    """Linear, BN, PReLU, linear, BN, PReLU, plus the block's input; nothing after the sum."""

    def __init__(self, num_features: int) -> None:
        super().__init__()
        width = num_features
        layers = list[nn.Module]()
        for _ in range(2):
            layers += [nn.Linear(width, width, bias=False), nn.BatchNorm1d(width), nn.PReLU(width)]
        self.layers = nn.Sequential(*layers)

    def forward(self, features: Tensor) -> Tensor:
        """Map [B, K] to [B, K]."""
        out: Tensor = features + self.layers(features)
        return out


class TypeII(nn.Module):
    """1x1 convolution to K channels without bias, average pool, batch norm, two residual blocks; D = K.

    Convolution and norm continue the backbone: the convolution shares its learning rate, the norm its momentum
    (docs/protocols.md, rows 35 to 37). The norms within the residual blocks have PyTorch's default momentum.

    Args:
        num_channels: C.
        num_classes: K.
        norm_momentum: of the batch norm after the convolution (PyTorch's convention).
        init_convolution: initialises the convolution; None for PyTorch's default.
    """

    def __init__(
        self,
        num_channels: int,
        num_classes: int,
        norm_momentum: float = 0.1,
        init_convolution: Callable[[nn.Conv2d], None] | None = None,
    ) -> None:
        super().__init__()
        self.num_features = num_classes
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.reduce = nn.Conv2d(num_channels, num_classes, 1, bias=False)
        if init_convolution is not None:
            init_convolution(self.reduce)
        self.transform = nn.Sequential(
            nn.BatchNorm1d(num_classes, momentum=norm_momentum), ResidualBlock(num_classes), ResidualBlock(num_classes)
        )

    def forward(self, feature_map: Tensor) -> Tensor:
        """Map a feature map [B, C, h, w], or averaged features [B, C], to [B, K].

        Averaging commutes with a 1x1 convolution without bias, so it is done first: h w times fewer operations.
        """
        if feature_map.ndim == 2:  # a matrix product costs less than a convolution over maps of one place
            reduced = functional.linear(feature_map, self.reduce.weight.flatten(1))
        else:
            reduced = self.reduce(self.pool(feature_map)).flatten(1)
        features: Tensor = self.transform(reduced)
        return features
