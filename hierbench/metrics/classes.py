"""Every metric as a torchmetrics class, which accumulates over batches and ranks.

Sums over examples are exact where each example adds integers, so that the result is bitwise the same for any batching
and any number of ranks; sums of float64 numbers agree to rounding. The area under a curve needs its points: `haurc_*`
keep 3 (L + 1) numbers for each example, 8 bytes each.
"""

from functools import cache
from typing import Any, Self

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities import dim_zero_cat

from hierbench.hierarchy.label_tree import Hierarchy
from hierbench.metrics.calibration import ScoreKind, as_probabilities
from hierbench.metrics.metric import Metric as MetricSpec
from hierbench.metrics.metric import sum_counts
from hierbench.metrics.metric_inputs import Evidence
from hierbench.metrics.metric_table import find_metric


class HierarchicalMetric(Metric):
    """A metric of `hierbench.metrics.known_metrics`: `HierarchicalMetric(tree, "hierdist@5")`.

    Shares lie between 0 and 1, as those of the functions of `hierbench.metrics`; tables show them in per cent.

    Args:
        hierarchy: over the K classes.
        name: of the metric, of a family with its k or level: "top1", "hops@20", "level_accuracy@2".
        scores: "probabilities" or "logits"; by default what each batch looks like, see `calibration.score_kind`.
        kwargs: of `torchmetrics.Metric`.

    Raises:
        UserError: a ValueError: there is no such metric, or the tree does not have its k or level.
    """

    is_differentiable = False
    full_state_update = False
    sums: Any  # [1 + S], or the contributions of all examples, a tensor per batch: after a synchronisation one of all

    def __new__(cls, hierarchy: Hierarchy, name: str, *args: Any, **kwargs: Any) -> Self:
        """Make an instance of a class with the metric's name, by which a `MetricCollection` tells a list's apart."""
        metric: Self = super().__new__(_named_class(cls, find_metric(name, hierarchy).name))
        return metric

    def __reduce__(self) -> Any:
        """Copy and pickle without the class of its name, which no module has."""
        return _restore, (self.name,), self.__getstate__()

    def __init__(self, hierarchy: Hierarchy, name: str, scores: ScoreKind | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.score_kind = scores
        self.hierarchy = hierarchy
        self.name = find_metric(name, hierarchy).name
        self.__dict__["higher_is_better"] = self.info.better == "higher"  # torchmetrics lets no one set it
        if self.info.summed:
            zeros = torch.zeros(1 + self.info.size(hierarchy), dtype=getattr(torch, self.info.dtype))
            self.add_state("sums", zeros, dist_reduce_fx="sum")
        else:
            self.add_state("sums", [], dist_reduce_fx="cat")

    @property
    def info(self) -> MetricSpec:
        """The metric; it is not pickled with the sums."""
        return find_metric(self.name)

    def update(
        self,
        scores: Tensor,
        targets: Tensor,
        probabilities: Tensor | None = None,
        level_predictions: Tensor | None = None,
    ) -> None:
        """Add a batch.

        Args:
            scores: [B, K], larger = ranked earlier.
            targets: [B].
            probabilities: [B, K], by default the scores where they are that, else their softmax.
            level_predictions: [B, L], which "fpa" and "tice" need, see `Evidence`.
        """
        if probabilities is None:  # which metrics of ranks do not need
            probabilities = scores if self.info.ranked else as_probabilities(scores, self.score_kind)
        evidence = Evidence(scores, targets.to(scores.device), self.hierarchy, probabilities, level_predictions)
        valid_targets = evidence.known_targets()
        needs = self.info.needs(evidence, self.info.parameter)
        if needs[0] is None:
            raise ValueError(f"{self.info.name} needs level_predictions")
        counts = self.info.contributions(*needs, valid_targets, self.hierarchy)
        if self.info.summed:
            self.sums += sum_counts(counts).to(self.sums.device)
        else:
            self.sums.append(counts)

    def plot(self, val: Any = None, ax: Any = None) -> Any:
        """Plot one value, by default that so far, or several, and return figure and axes, as torchmetrics does."""
        return self._plot(val, ax)

    def compute(self) -> Tensor:
        """Return a float64 number over everything added so far, on all ranks; a share is between 0 and 1."""
        if not len(self.sums):
            raise ValueError("no examples to evaluate")
        sums = self.sums.cpu().double() if self.info.summed else dim_zero_cat(self.sums)
        return torch.as_tensor(self.info.value_of_total(sums), dtype=torch.float64) / self.info.scale


@cache
def _named_class(base: Any, name: str) -> Any:
    return type(name, (base,), {"__module__": base.__module__, "__doc__": base.__doc__})


def _restore(name: str) -> HierarchicalMetric:
    metric: HierarchicalMetric = object.__new__(_named_class(HierarchicalMetric, name))
    return metric
