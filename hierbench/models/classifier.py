"""A whole model: backbone, feature extractor and method, and which learning rate each part takes."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from hierbench.hierarchy import Hierarchy
from hierbench.method import Method
from hierbench.models.backbones import Weights, build_backbone
from hierbench.models.features import TypeI, TypeII
from hierbench.recipe import FeatureType


class Classifier(nn.Module):
    """Images in, the method's outputs out."""

    def __init__(self, backbone: nn.Module, features: nn.Module, method: Method) -> None:
        super().__init__()
        self.backbone = backbone
        self.features = features
        self.method = method

    def forward(self, images: Tensor) -> Any:
        """Map images [B, 3, H, W] to whatever the method's `loss` and `scores` take."""
        return self.method(self.features(self.backbone(images)))

    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        """Return the trainable parameters that share a learning rate: backbone, transform, classifier."""
        parts = {"backbone": self.backbone, "transform": self.features, "classifier": self.method}
        return {name: [p for p in part.parameters() if p.requires_grad] for name, part in parts.items()}


def build_classifier(
    method: type[Method],
    hierarchy: Hierarchy,
    feature_type: FeatureType,
    backbone: str,
    weights: Weights = "none",
    params: Any = None,
) -> Classifier:
    """Build a model with fresh weights from the global random generator.

    Args:
        method: the class of the method.
        hierarchy: over the K classes.
        feature_type: "type-I" or "type-II".
        backbone: a name for `build_backbone`.
        weights: of the backbone.
        params: the method's `Params`, or None for the defaults.
    """
    network = build_backbone(backbone, weights)
    features: TypeI | TypeII
    if feature_type == "type-I":
        features = TypeI(network.num_channels)
    else:
        features = TypeII(network.num_channels, hierarchy.num_classes)
    return Classifier(network, features, method(hierarchy, features.num_features, params))
