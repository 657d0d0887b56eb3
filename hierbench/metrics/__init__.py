"""Metrics of predictions on the tree: a function each, one registry, and torchmetrics classes.

The functions take (y_true, y_pred or y_score, tree), as scikit-learn's do: `hf1_score(y_true, y_pred, tree)`. `_score`
is better where larger; `_loss`, `_error`, `distance` and `severity` where smaller.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from hierbench.metrics.metric import Metric
from hierbench.metrics.metric_table import (
    FUNCTIONS,
    compute_metrics,
    find_metric,
    known_metrics,
)
from hierbench.metrics.metric_table import PAPER_NAMES as PAPER

if TYPE_CHECKING:
    from hierbench.metrics.functions import *  # noqa: F403
    from hierbench.metrics.metric_inputs import Evidence
    from hierbench.metrics.ranked_classes import top_class, top_classes
    from hierbench.metrics.sums import (
        DEFAULT_KS,
        Tally,
        evaluate,
        metrics_from_counts,
        mistakes_by_distance,
        usable_ks,
    )

__all__ = [
    "DEFAULT_KS",
    "PAPER",
    "Evidence",
    "Metric",
    "Tally",
    "compute_metrics",
    "evaluate",
    "find_metric",
    "known_metrics",
    "metrics_from_counts",
    "mistakes_by_distance",
    "top_class",
    "top_classes",
    "usable_ks",
    *FUNCTIONS,
]


def __getattr__(name: str) -> Any:
    """Load the numerics on first use: tables read names and titles without torch."""
    if name in __all__:
        for module in map(
            import_module,
            (f"hierbench.metrics.{home}" for home in ("sums", "ranked_classes", "metric_inputs", "functions")),
        ):
            if hasattr(module, name):
                return getattr(module, name)
    raise AttributeError(f"module 'hierbench.metrics' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
