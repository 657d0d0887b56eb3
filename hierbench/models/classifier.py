"""A whole model: backbone, feature extractor and method, and which learning rate each part takes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from hierbench.api.method import Method
from hierbench.config.recipe import FeatureType, Model
from hierbench.hierarchy.tree import Hierarchy
from hierbench.models.backbones import WideBlock, build_backbone
from hierbench.models.features import TypeI, TypeII, at_least_float32
from hierbench.models.weights import load_weights


class Classifier(nn.Module):
    """Images in, the method's outputs out."""

    def __init__(self, backbone: nn.Module, features: TypeI | TypeII, method: Method) -> None:
        super().__init__()
        self.backbone = backbone
        self.features = features
        self.method = method
        self.compiled_embed: Callable[[Tensor], Tensor] | None = None  # see `hierbench.models.compiled`
        # Where several processes train: returns the features of the whole batch, so that the method sees all of it.
        self.gather: Callable[[Tensor], Tensor] | None = None

    def embed(self, images: Tensor) -> Tensor:
        """Map images [B, 3, H, W] to features [B, D]."""
        features: Tensor = self.features(self.backbone(images))
        return features

    def forward(self, images: Tensor) -> Any:
        """Map images [B, 3, H, W] to whatever the method's `loss` and `scores` take.

        The method computes in float32 also where the features come from bfloat16: with 8 bits of precision the scores
        of many classes would tie. In float64 everything stays in float64.
        """
        embed = self.compiled_embed if self.training and self.compiled_embed is not None else self.embed
        features = at_least_float32(embed(images))
        if self.training and self.gather is not None:
            features = self.gather(features)
        kind = features.device.type
        with torch.autocast(kind, enabled=False) if torch.amp.is_autocast_available(kind) else nullcontext():
            return self.method(features)

    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        """Return the trainable parameters that share a learning rate: backbone, transform, classifier.

        The 1x1 convolution of type II learns with the backbone that it ends (docs/protocols.md, row 37).
        """
        parts: dict[str, list[nn.Module]] = {
            "backbone": [self.backbone],
            "transform": [self.features.transform],
            "classifier": [self.method],
        }
        if isinstance(self.features, TypeII):
            parts["backbone"].append(self.features.reduce)
        return {
            name: [p for part in of_name for p in part.parameters() if p.requires_grad]
            for name, of_name in parts.items()
        }

    def parameters_without_gradient(self) -> list[str]:
        """Return the names of trainable parameters that no output depends on: norms that a raw input goes round."""
        return [
            f"{name}.bn1.{parameter}"
            for name, block in self.named_modules()
            if isinstance(block, WideBlock) and block.raw_input
            for parameter, _ in block.bn1.named_parameters()
        ]


def build_classifier(
    method: type[Method],
    hierarchy: Hierarchy,
    feature_type: FeatureType,
    model: Model,
    params: Any = None,
    weights: Path | None = None,
) -> Classifier:
    """Build a model; what is not loaded comes from the global random generator.

    Args:
        method: the class of the method.
        hierarchy: over the K classes.
        feature_type: "type-I" or "type-II".
        model: the recipe's section.
        params: the method's `Params`, or None for the defaults.
        weights: the file of `model.weights`; None leaves the backbone as it was initialised.

    Raises:
        UserError: the weights do not fit.
    """
    network = build_backbone(model.backbone, model.wrn_group_input)
    if weights is not None:
        load_weights(network, model.weights, weights)
    features: TypeI | TypeII
    if feature_type == "type-I":
        features = TypeI(network.num_channels, model.type_i_units, model.type_i_pool)
    else:
        features = TypeII(network.num_channels, hierarchy.num_classes, network.norm_momentum, network.init_convolution)
    return Classifier(network, features, method(hierarchy, features.num_features, params))
