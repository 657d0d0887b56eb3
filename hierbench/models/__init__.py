"""Model = backbone (feature map) -> feature extractor (type I or II) -> method."""

from hierbench.models.classifier import Classifier, build_classifier
from hierbench.models.feature_extractors import TypeI, TypeII
from hierbench.models.libraries.lookup import build_backbone

__all__ = ["Classifier", "TypeI", "TypeII", "build_backbone", "build_classifier"]
