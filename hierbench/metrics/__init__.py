"""Metrics of ranked predictions on the tree: pure functions, and torchmetrics classes over them in `classes`."""

from hierbench.metrics.ranking import top_classes
from hierbench.metrics.sums import (
    CHUNK,
    DEFAULT_KS,
    Tally,
    distance_counts,
    evaluate,
    metrics_from_counts,
    mistakes_by_distance,
    usable_ks,
)

__all__ = [
    "CHUNK",
    "DEFAULT_KS",
    "Tally",
    "distance_counts",
    "evaluate",
    "metrics_from_counts",
    "mistakes_by_distance",
    "top_classes",
    "usable_ks",
]
