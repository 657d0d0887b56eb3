"""The metrics of the registry beyond the paper's as torchmetrics classes, which accumulate over batches and ranks.

Each computes what the registry's metric of its docstring is, in the same unit. States are integer counts where the
metric allows it, so the result is the same for any batching and any number of ranks. HOPS and the calibration errors
add up float64 numbers, so theirs agree to rounding. The area under a curve needs its points: `HierarchicalAURC` keeps
L + 3 numbers for each example, 8 bytes each.
"""

from typing import Any, Literal

import torch
from torch import Tensor
from torchmetrics import Metric

from hierbench.hierarchy.tree import Hierarchy
from hierbench.metrics import calibration, hops, levels, paths, selective
from hierbench.metrics.ranking import check_shapes, known_targets, top_class


class _Summed(Metric):
    """A metric that follows from sums over examples, [S]."""

    is_differentiable = False
    full_state_update = False
    sums: Tensor

    def __init__(self, hierarchy: Hierarchy, size: int, dtype: torch.dtype = torch.int64, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.hierarchy = hierarchy
        self.add_state("sums", torch.zeros(size, dtype=dtype), dist_reduce_fx="sum")

    def _add(self, sums: Tensor) -> None:
        self.sums += sums.reshape(self.sums.shape).to(self.sums.device)


def _ranked_first(scores: Tensor, targets: Tensor, hierarchy: Hierarchy) -> tuple[Tensor, Tensor]:
    """Return the top classes and the targets, both [B], of a batch that is checked."""
    check_shapes(scores, targets, hierarchy.num_classes)
    return top_class(scores), known_targets(targets.to(scores.device), hierarchy.num_classes)


def _percent(part: Tensor, whole: Tensor) -> Tensor:
    """Return 100 part / whole in float64, NaN of nothing."""
    return 100.0 * part.double() / whole.double()


class LevelAccuracy(_Summed):
    """Accuracy at every level, [L] per cent, coarsest first: `level_accuracy@l`, lifted `level_accuracy_lifted@l`."""

    higher_is_better = True

    def __init__(self, hierarchy: Hierarchy, lifted: bool = False, **kwargs: Any) -> None:
        super().__init__(hierarchy, 3 + hierarchy.num_levels, **kwargs)
        self.lifted = lifted

    def update(self, scores: Tensor, targets: Tensor) -> None:
        """Add a batch: scores [B, K], which are probabilities if `lifted`; targets [B]."""
        if self.lifted:
            predictions = levels.lifted_predictions(scores, self.hierarchy)
        else:
            predictions = levels.levels_of(top_class(scores), self.hierarchy)
        self._add(levels.level_counts(predictions, targets, self.hierarchy))

    def compute(self) -> Tensor:
        """Return [L] float64."""
        return _percent(self.sums[3:], self.sums[0])


class _OfLevels(_Summed):
    place: int

    def __init__(self, hierarchy: Hierarchy, **kwargs: Any) -> None:
        super().__init__(hierarchy, 3 + hierarchy.num_levels, **kwargs)

    def update(self, predictions: Tensor, targets: Tensor) -> None:
        """Add a batch: level predictions [B, L], see `levels`; targets [B]."""
        self._add(levels.level_counts(predictions, targets, self.hierarchy))

    def compute(self) -> Tensor:
        """Return a float64 number."""
        return _percent(self.sums[self.place], self.sums[0])


class FullPathAccuracy(_OfLevels):
    """`fpa`: per cent of examples whose predictions are right at every level."""

    higher_is_better = True
    place = 1


class TreeInconsistency(_OfLevels):
    """`tice`: per cent of examples whose predictions per level are not one path of the tree."""

    higher_is_better = False
    place = 2


class HierarchicalScore(_Summed):
    """Hierarchical precision, recall or F: `hp_micro` to `hf_macro`, which `name` says."""

    higher_is_better = True

    def __init__(self, hierarchy: Hierarchy, name: str = "hf_micro", **kwargs: Any) -> None:
        if name not in paths.SCORES:
            raise ValueError(f"name must be one of {', '.join(paths.SCORES)}, got {name!r}")
        super().__init__(hierarchy, (hierarchy.num_levels + 1) ** 3, **kwargs)
        self.name = name

    def update(self, scores: Tensor, targets: Tensor) -> None:
        """Add a batch: scores [B, K], targets [B]."""
        self._add(paths.path_counts(*_ranked_first(scores, targets, self.hierarchy), self.hierarchy))

    def compute(self) -> Tensor:
        """Return a float64 number."""
        counts = self.sums.reshape([self.hierarchy.num_levels + 1] * 3)
        return torch.tensor(paths.hierarchical_scores(counts)[self.name], dtype=torch.float64)


class InformationSeverity(_Summed):
    """`information_severity`: mean over mistakes of log2 of the classes below the LCA; NaN without mistakes."""

    higher_is_better = False

    def __init__(self, hierarchy: Hierarchy, **kwargs: Any) -> None:
        super().__init__(hierarchy, hierarchy.num_classes + 1, **kwargs)

    def update(self, scores: Tensor, targets: Tensor) -> None:
        """Add a batch: scores [B, K], targets [B]."""
        self._add(paths.lca_counts(*_ranked_first(scores, targets, self.hierarchy), self.hierarchy))

    def compute(self) -> Tensor:
        """Return a float64 number."""
        return torch.tensor(paths.information_severity(self.sums), dtype=torch.float64)


class MinimumDistance(_Summed):
    """`min_distance@k`: mean over examples of the smallest hierarchical distance among the k best classes."""

    higher_is_better = False

    def __init__(self, hierarchy: Hierarchy, k: int = 5, **kwargs: Any) -> None:
        if not 1 <= k <= hierarchy.num_classes:
            raise ValueError(f"k must be from 1 to {hierarchy.num_classes}, got {k}")
        super().__init__(hierarchy, 2, **kwargs)
        self.k = k

    def update(self, scores: Tensor, targets: Tensor) -> None:
        """Add a batch: scores [B, K], targets [B]."""
        self._add(paths.min_distance_counts(scores, targets, self.hierarchy, [self.k]))

    def compute(self) -> Tensor:
        """Return a float64 number."""
        return self.sums[1].double() / self.sums[0].double()


class HOPS(_Summed):
    """`hops@k`, or `hops` over all classes without a k: how well the ranking follows the tree, in per cent."""

    higher_is_better = True

    def __init__(self, hierarchy: Hierarchy, k: int | None = None, **kwargs: Any) -> None:
        if k is not None and not 1 <= k <= hierarchy.num_classes:
            raise ValueError(f"k must be from 1 to {hierarchy.num_classes}, got {k}")
        super().__init__(hierarchy, 2, torch.float64, **kwargs)
        self.k = k

    def update(self, scores: Tensor, targets: Tensor) -> None:
        """Add a batch: scores [B, K], targets [B]."""
        values = hops.hops_scores(scores, targets, self.hierarchy, self.k)
        self._add(torch.stack([values.sum(), torch.full_like(values[0], len(values))]))

    def compute(self) -> Tensor:
        """Return a float64 number."""
        return _percent(self.sums[0], self.sums[1])


class CalibrationError(_Summed):
    """`ece` or `mce`, which `norm` says: error of the top-ranked class's probability, in per cent, over 15 bins."""

    higher_is_better = False

    def __init__(self, hierarchy: Hierarchy, norm: Literal["mean", "max"] = "mean", **kwargs: Any) -> None:
        super().__init__(hierarchy, 3 * calibration.BINS, torch.float64, **kwargs)
        if norm not in ("mean", "max"):
            raise ValueError(f"norm must be mean or max, got {norm!r}")
        self.norm = norm

    def update(self, scores: Tensor, targets: Tensor, probabilities: Tensor | None = None) -> None:
        """Add a batch: scores [B, K], targets [B], probabilities [B, K], by default the softmax of the scores."""
        classes, targets = _ranked_first(scores, targets, self.hierarchy)
        self._add(calibration.bin_sums(classes, targets, _given_or_softmax(probabilities, scores)))

    def compute(self) -> Tensor:
        """Return a float64 number."""
        mean, largest = calibration.calibration_errors(self.sums.reshape(3, calibration.BINS))
        return torch.tensor(mean if self.norm == "mean" else largest, dtype=torch.float64)


class HierarchicalAURC(Metric):
    """`haurc_climbing` or `haurc_selective`, which `rule` says: area under risk over coverage."""

    is_differentiable = False
    full_state_update = False
    higher_is_better = False
    classes: list[Tensor]
    targets: list[Tensor]
    climbs: list[Tensor]

    def __init__(self, hierarchy: Hierarchy, rule: selective.Rule = "climbing", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if rule not in ("climbing", "selective"):
            raise ValueError(f"rule must be climbing or selective, got {rule!r}")
        self.hierarchy, self.rule = hierarchy, rule
        for state in ("classes", "targets", "climbs"):
            self.add_state(state, [], dist_reduce_fx="cat")

    def update(self, scores: Tensor, targets: Tensor, probabilities: Tensor | None = None) -> None:
        """Add a batch: scores [B, K], targets [B], probabilities [B, K], by default the softmax of the scores."""
        classes, targets = _ranked_first(scores, targets, self.hierarchy)
        given = _given_or_softmax(probabilities, scores)
        self.classes.append(classes)
        self.targets.append(targets)
        self.climbs.append(selective.climb_probabilities(classes, given, self.hierarchy))

    def curve(self) -> selective.OperatingCurve:
        """Return the operating curve of what this rank has added, of all ranks after `sync`."""
        classes, targets, climbs = (_joined(state) for state in (self.classes, self.targets, self.climbs))
        return selective.operating_curve(classes, targets, climbs, self.hierarchy, self.rule)

    def compute(self) -> Tensor:
        """Return a float64 number over everything added so far, on all ranks."""
        return torch.tensor(selective.area_under(self.curve()), dtype=torch.float64)


def _given_or_softmax(probabilities: Tensor | None, scores: Tensor) -> Tensor:
    return scores.double().softmax(dim=1) if probabilities is None else probabilities


def _joined(state: list[Tensor] | Tensor) -> Tensor:
    """Return a list state as one tensor, which it already is after a synchronisation."""
    if isinstance(state, Tensor):
        return state
    if not state:
        raise ValueError("no examples to evaluate")
    return torch.cat(state)
