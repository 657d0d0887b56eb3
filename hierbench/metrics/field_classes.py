"""The metrics of the registry beyond the paper's as torchmetrics classes, which accumulate over batches and ranks.

Each computes what the registry's metric of its docstring is, in the same unit. Sums of float64 numbers agree to
rounding for any batching and any number of ranks, those of whole numbers exactly. The area under a curve needs its
points: `HierarchicalAURC` keeps 3 (L + 1) numbers for each example, 8 bytes each.
"""

from typing import Any, Literal

from torch import Tensor

from hierbench.hierarchy.tree import Hierarchy
from hierbench.metrics import levels, paths, selective
from hierbench.metrics.classes import Computed
from hierbench.metrics.evidence import Evidence
from hierbench.metrics.ranking import known_targets, top_class


class _OfLevels(Computed):
    """A metric of level predictions, which need no scores."""

    def update(self, predictions: Tensor, targets: Tensor) -> None:
        """Add a batch: level predictions [B, L], see `levels`; targets [B]."""
        self._add((predictions,), known_targets(targets.to(predictions.device), self.hierarchy.num_classes))


class LevelAccuracy(_OfLevels):
    """Accuracy at every level, [L] per cent, coarsest first: `level_accuracy@l`, lifted `level_accuracy_lifted@l`."""

    higher_is_better = True

    def __init__(self, hierarchy: Hierarchy, lifted: bool = False, **kwargs: Any) -> None:
        super().__init__(hierarchy, family="fpa", **kwargs)
        self.lifted = lifted

    def update(self, scores: Tensor, targets: Tensor) -> None:
        """Add a batch: scores [B, K], which are probabilities if `lifted`; targets [B]."""
        if self.lifted:
            super().update(levels.lifted_predictions(scores, self.hierarchy), targets)
        else:
            super().update(levels.levels_of(top_class(scores), self.hierarchy), targets)

    def compute(self) -> Tensor:
        """Return [L] float64."""
        sums: Tensor = self.sums.cpu().double()
        return 100.0 * sums[3:] / sums[0]


class FullPathAccuracy(_OfLevels):
    """`fpa`: per cent of examples whose predictions are right at every level."""

    family = "fpa"
    higher_is_better = True


class TreeInconsistency(_OfLevels):
    """`tice`: per cent of examples whose predictions per level are not one path of the tree."""

    family = "tice"
    higher_is_better = False


class HierarchicalScore(Computed):
    """Hierarchical precision, recall or F: `hp_micro` to `hf_macro`, which `name` says."""

    higher_is_better = True

    def __init__(self, hierarchy: Hierarchy, name: str = "hf_micro", **kwargs: Any) -> None:
        if name not in paths.SCORES:
            raise ValueError(f"name must be one of {', '.join(paths.SCORES)}, got {name!r}")
        super().__init__(hierarchy, family=name, **kwargs)


class InformationSeverity(Computed):
    """`information_severity`: mean over mistakes of log2 of the classes below the LCA; NaN without mistakes."""

    family = "information_severity"
    higher_is_better = False


class MinimumDistance(Computed):
    """`min_distance@k`: mean over examples of the smallest hierarchical distance among the k best classes."""

    higher_is_better = False

    def __init__(self, hierarchy: Hierarchy, k: int = 5, **kwargs: Any) -> None:
        super().__init__(hierarchy, family="min_distance@", parameter=k, **kwargs)


class HOPS(Computed):
    """`hops@k`, or `hops` over all classes without a k: how well the ranking follows the tree, in per cent."""

    higher_is_better = True

    def __init__(self, hierarchy: Hierarchy, k: int | None = None, **kwargs: Any) -> None:
        k = hierarchy.num_classes if k is None else k
        super().__init__(hierarchy, family="hops@", parameter=k, **kwargs)


class _OfConfidence(Computed):
    def update(self, scores: Tensor, targets: Tensor, probabilities: Tensor | None = None) -> None:
        """Add a batch: scores [B, K], targets [B], probabilities [B, K], by default the softmax of the scores."""
        given = scores.double().softmax(dim=1) if probabilities is None else probabilities
        self._add_evidence(Evidence(scores, targets.to(scores.device), self.hierarchy, given))


class CalibrationError(_OfConfidence):
    """`ece` or `mce`, which `norm` says: error of the top-ranked class's probability, in per cent, over 15 bins."""

    higher_is_better = False

    def __init__(self, hierarchy: Hierarchy, norm: Literal["mean", "max"] = "mean", **kwargs: Any) -> None:
        if norm not in ("mean", "max"):
            raise ValueError(f"norm must be mean or max, got {norm!r}")
        super().__init__(hierarchy, family="ece" if norm == "mean" else "mce", **kwargs)


class HierarchicalAURC(_OfConfidence):
    """`haurc_climbing` or `haurc_selective`, which `rule` says: area under risk over coverage."""

    higher_is_better = False

    def __init__(self, hierarchy: Hierarchy, rule: selective.Rule = "climbing", **kwargs: Any) -> None:
        if rule not in ("climbing", "selective"):
            raise ValueError(f"rule must be climbing or selective, got {rule!r}")
        super().__init__(hierarchy, family=f"haurc_{rule}", **kwargs)
