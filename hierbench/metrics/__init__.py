"""Metrics of predictions on the tree: pure functions, torchmetrics classes over them in `classes`, and one registry."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from hierbench.metrics.evidence import Evidence
from hierbench.metrics.registry import PAPER, MetricInfo, compute_metrics, find_metric, known_metrics

if TYPE_CHECKING:
    from hierbench.metrics.ranking import top_class, top_classes
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
    "PAPER",
    "Evidence",
    "MetricInfo",
    "Tally",
    "compute_metrics",
    "distance_counts",
    "evaluate",
    "find_metric",
    "known_metrics",
    "metrics_from_counts",
    "mistakes_by_distance",
    "top_class",
    "top_classes",
    "usable_ks",
]

# The numerics load on first use: tables read names and titles without torch.
_RANKING = ("top_class", "top_classes")


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module(f"hierbench.metrics.{'ranking' if name in _RANKING else 'sums'}"), name)
    raise AttributeError(f"module 'hierbench.metrics' has no attribute {name!r}")
