"""The paper's metrics as torchmetrics classes, which accumulate over batches and ranks; others are in `field_classes`.

Sums over examples are exact where each example adds integers, so the result is bitwise the same for any batching and
any number of ranks.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities import dim_zero_cat

from hierbench.hierarchy.tree import Hierarchy
from hierbench.metrics.computations import COMPUTATIONS, Computation, sums_of
from hierbench.metrics.evidence import Evidence
from hierbench.metrics.sums import DEFAULT_KS, contributions, metrics_from_counts, usable_ks


class HierarchicalMetrics(Metric):
    """All metrics of `evaluate` at once; `compute()` returns the same dictionary of floats."""

    is_differentiable = False
    full_state_update = False
    sums: Tensor

    def __init__(self, hierarchy: Hierarchy, ks: Sequence[int] = DEFAULT_KS, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.hierarchy, self.shown_ks = hierarchy, tuple(ks)
        self.ks = usable_ks(ks, hierarchy.num_classes)
        self.add_state("sums", torch.zeros(2 + len(self.ks), dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, scores: Tensor, targets: Tensor) -> None:
        """Add a batch: scores [B, K], targets [B]."""
        evidence = Evidence(scores, targets.to(scores.device), self.hierarchy, scores)
        known = evidence.known_targets()
        added = contributions(evidence.ranked(max(self.ks)), known, self.hierarchy, self.ks)
        self.sums += sums_of(added).to(self.sums.device)

    def compute(self) -> dict[str, float]:
        """Return the metrics over everything added so far, on all ranks."""
        return metrics_from_counts(self.sums.tolist(), self.ks, self.shown_ks)


class Computed(Metric):
    """A metric of `computations`, from sums over examples where it allows that; its k is the parameter."""

    is_differentiable = False
    full_state_update = False
    family: str  # name of the computation, unless the options choose one
    sums: Any  # [1 + S], or what all examples add, a tensor per batch: after a synchronisation one of all

    def __init__(self, hierarchy: Hierarchy, *, family: str = "", parameter: int = 0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.family = family or self.family
        if self.family.endswith("@") and not 1 <= parameter <= hierarchy.num_classes:
            raise ValueError(f"k must be from 1 to {hierarchy.num_classes}, got {parameter}")
        self.hierarchy, self.parameter = hierarchy, parameter
        if self.computation.summed:
            zeros = torch.zeros(1 + self.computation.size(hierarchy), dtype=self.computation.dtype)
            self.add_state("sums", zeros, dist_reduce_fx="sum")
        else:
            self.add_state("sums", [], dist_reduce_fx="cat")

    @property
    def computation(self) -> Computation:
        """How it is computed."""
        return COMPUTATIONS[self.family]

    def update(self, scores: Tensor, targets: Tensor) -> None:
        """Add a batch: scores [B, K], targets [B]."""
        self._add_evidence(Evidence(scores, targets.to(scores.device), self.hierarchy, scores))

    def _add_evidence(self, evidence: Evidence) -> None:
        known = evidence.known_targets()
        self._add(self.computation.needs(evidence, self.parameter), known)

    def _add(self, needs: tuple[Any, ...], targets: Tensor) -> None:
        counts = self.computation.counts(*needs, targets, self.hierarchy)
        if self.computation.summed:
            self.sums += sums_of(counts).to(self.sums.device)
        else:
            self.sums.append(counts)

    def compute(self) -> Tensor:
        """Return a float64 number over everything added so far, on all ranks."""
        if not len(self.sums):
            raise ValueError("no examples to evaluate")
        sums = self.sums.cpu().double() if self.computation.summed else dim_zero_cat(self.sums)
        return torch.as_tensor(self.computation.value(sums, self.parameter), dtype=torch.float64)


class Top1Accuracy(Computed):
    """Per cent of examples whose top-ranked class is the target."""

    family = "top1"
    higher_is_better = True


class MistakeSeverity(Computed):
    """Mean hierarchical distance of the top-ranked class over mistakes only; NaN without mistakes."""

    family = "mistake_severity"
    higher_is_better = False


class HierarchicalDistance(Computed):
    """Mean over examples of the mean hierarchical distance of the top k classes."""

    higher_is_better = False

    def __init__(self, hierarchy: Hierarchy, k: int = 1, **kwargs: Any) -> None:
        super().__init__(hierarchy, family="hierdist@", parameter=k, **kwargs)
