"""The metrics of `hierbench.metrics` as torchmetrics classes, which accumulate over batches and ranks.

The states are integer sums, so the result is bitwise the same for any batching and any number of ranks.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric

from hierbench.hierarchy.tree import Hierarchy
from hierbench.metrics.sums import DEFAULT_KS, distance_counts, metrics_from_counts, usable_ks


class HierarchicalMetrics(Metric):
    """All metrics of `evaluate` at once; `compute()` returns the same dictionary of floats."""

    is_differentiable = False
    full_state_update = False
    counts: Tensor

    def __init__(self, hierarchy: Hierarchy, ks: Sequence[int] = DEFAULT_KS, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.hierarchy, self.shown_ks = hierarchy, tuple(ks)
        self.ks = usable_ks(ks, hierarchy.num_classes)
        self.add_state("counts", torch.zeros(2 + len(self.ks), dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, scores: Tensor, targets: Tensor) -> None:
        """Add a batch: scores [B, K], targets [B]."""
        self.counts += distance_counts(scores, targets, self.hierarchy, self.ks)

    def compute(self) -> dict[str, float]:
        """Return the metrics over everything added so far, on all ranks."""
        return metrics_from_counts(self.counts.tolist(), self.ks, self.shown_ks)


class _Single(HierarchicalMetrics):
    """A single metric, as a number."""

    key: str

    def __init__(self, hierarchy: Hierarchy, *, ks: Sequence[int] = (1,), **kwargs: Any) -> None:
        super().__init__(hierarchy, ks, **kwargs)

    def compute(self) -> Tensor:  # type: ignore[override]  # a number instead of the dictionary
        return torch.tensor(super().compute()[self.key], dtype=torch.float64)


class Top1Accuracy(_Single):
    """Per cent of examples whose top-ranked class is the target."""

    key = "top1"
    higher_is_better = True


class MistakeSeverity(_Single):
    """Mean hierarchical distance of the top-ranked class over mistakes only; NaN without mistakes."""

    key = "mistake_severity"
    higher_is_better = False


class HierarchicalDistance(_Single):
    """Mean over examples of the mean hierarchical distance of the top k classes."""

    higher_is_better = False

    def __init__(self, hierarchy: Hierarchy, k: int = 1, **kwargs: Any) -> None:
        if not 1 <= k <= hierarchy.num_classes:
            raise ValueError(f"k must be from 1 to {hierarchy.num_classes}, got {k}")
        super().__init__(hierarchy, ks=(k,), **kwargs)
        self.key = f"hierdist@{k}"
