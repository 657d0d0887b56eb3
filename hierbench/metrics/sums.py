"""Top-1 accuracy, mistake severity and hierarchical distance at k, as exact integer sums over examples.

Shapes: N examples, K classes, k ranked predictions. A larger score ranks earlier; ties go to the lower class index.
All sums are integers, so results do not depend on batching, device or the number of ranks.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from hierbench.hierarchy.class_names import rows_in_order, scores_by_class
from hierbench.hierarchy.label_tree import Hierarchy, IntArray
from hierbench.hierarchy.levels import class_distances
from hierbench.metrics.ranked_classes import as_tensor, check_shapes, raise_for, ranked

DEFAULT_KS = (1, 5, 20)
EXAMPLES_PER_CHUNK = 1024  # examples at a time, which bounds the memory


def usable_ks(ks: Sequence[int], num_classes: int) -> tuple[int, ...]:
    """Return the ks up to K, sorted, always with 1 (severity needs it)."""
    if any(k != int(k) or k < 1 for k in ks):
        raise ValueError(f"k must be a whole number of at least 1, got {tuple(ks)}")
    return tuple(sorted({1, *(k for k in ks if k <= num_classes)}))


def _sums(scores: Tensor, targets: Tensor, hierarchy: Hierarchy, ks: Sequence[int]) -> Tensor:
    """Return sums over a batch, [4 + len(ks) + height + 1] int64, without synchronising with the device."""
    # Rows with a NaN, targets that are not a class, examples, sums of `contributions`, mistakes at each distance.
    check_shapes(scores, targets, hierarchy.num_classes)
    if not len(scores):
        return torch.zeros(5 + len(ks) + hierarchy.height, dtype=torch.int64, device=scores.device)
    targets = targets.long()
    safe_targets = targets.clamp(0, hierarchy.num_classes - 1)
    classes, num_nan = ranked(scores, max(ks))
    added = contributions(classes, safe_targets, hierarchy, ks)
    at_distance = added[:, 1:2] == torch.arange(hierarchy.height + 1, device=scores.device)  # 1 is the first of ks
    mistakes = (at_distance & (added[:, :1] == 0)).sum(dim=0)
    first = torch.stack([num_nan, (safe_targets != targets).sum(), torch.full_like(num_nan, len(scores))])
    return torch.cat([first, added.sum(dim=0), mistakes])


def contributions(classes: Tensor | IntArray, targets: Tensor | IntArray, tree: Hierarchy, ks: Sequence[int]) -> Tensor:
    """Return each example's contribution to the sums of `metrics_from_counts`, after the 1 of its number.

    Args:
        classes: [N, k] ranked class indices, best first.
        targets: [N] class indices.
        tree: over the K classes.
        ks: of hierdist@k, each at most k.

    Returns:
        [N, 1 + len(ks)] int64: 1 if correct, then for each of `ks` the sum of the distances of the top classes.
    """
    classes = as_tensor(classes, "classes must be integers")
    targets = as_tensor(targets, "targets must be integers")
    distances = class_distances(classes[:, : max(ks)], targets, tree)
    by_k = distances.cumsum(dim=1)[:, [k - 1 for k in ks]]
    return torch.cat([(classes[:, :1] == targets[:, None]).long(), by_k], dim=1)


def distance_counts(classes: Tensor, targets: Tensor, tree: Hierarchy) -> Tensor:
    """Return the `contributions` of the best class, and of all k ranked classes [N, k]."""
    return contributions(classes, targets, tree, [1, classes.shape[1]])


class Tally:
    """Sums over many batches, kept on the device; only reading a result synchronises with it."""

    def __init__(self, hierarchy: Hierarchy, ks: Sequence[int] = DEFAULT_KS) -> None:
        self.hierarchy = hierarchy
        self.asked = tuple(ks)
        self.ks = usable_ks(self.asked, hierarchy.num_classes)
        self._sums: Tensor | None = None

    def add(self, scores: Tensor, targets: Tensor) -> None:
        """Add a batch of any size: scores [N, K], targets [N], both on the device of earlier batches.

        Wrong shapes raise a ValueError here, wrong values when a result is read.
        """
        sums = _sums(scores, targets, self.hierarchy, self.ks)
        self._sums = sums if self._sums is None else self._sums + sums

    def _read(self) -> list[int]:
        if self._sums is None:
            raise ValueError("no examples to evaluate")
        num_nan, num_no_class, *sums = self._sums.tolist()  # host-device sync, the only one
        raise_for(num_nan, num_no_class, self.hierarchy.num_classes)
        return sums

    def metrics(self) -> dict[str, float]:
        """Return the metrics of `evaluate` over all batches.

        Raises:
            ValueError: no examples, a target that is not a class, or a NaN score.
        """
        return metrics_from_counts(self._read()[: 2 + len(self.ks)], self.ks, self.asked)

    def mistakes_by_distance(self) -> list[int]:
        """Return `mistakes_by_distance` over all batches; raises as `metrics`."""
        return self._read()[2 + len(self.ks) :]


def metrics_from_sums(sums: NDArray[np.float64], ks: Sequence[int]) -> dict[str, NDArray[np.float64]]:
    """Return the metrics of `evaluate` from sums [2 + len(ks), ...]: the examples, then those of `contributions`."""
    examples, correct, *distances = sums
    total_of = dict(zip(ks, distances, strict=True))
    with np.errstate(invalid="ignore"):  # without mistakes their distances are 0, too: NaN
        severity = total_of[1] / (examples - correct)
    values = {"top1": 100.0 * correct / examples, "mistake_severity": severity}
    return values | {f"hierdist@{k}": total / (k * examples) for k, total in total_of.items()}


def metrics_from_counts(
    counts: Sequence[float], ks: Sequence[int], shown: Sequence[int] | None = None
) -> dict[str, float]:
    """Turn the examples and the sums of their `contributions` into the metrics of `evaluate` for the ks `shown`."""
    if not counts[0]:
        raise ValueError("no examples to evaluate")
    hidden = set() if shown is None else {f"hierdist@{k}" for k in set(ks) - set(shown)}
    values = metrics_from_sums(np.array(counts, dtype=np.float64), ks)
    return {name: float(value) for name, value in values.items() if name not in hidden}


def metrics_from_contributions(added: Tensor, ks: Sequence[int]) -> dict[str, float]:
    """Return the metrics of `evaluate` from the `contributions` [N, 1 + len(ks)] of all examples."""
    return metrics_from_counts([len(added), *added.sum(dim=0).tolist()], ks)


def mistakes_from_contributions(added: Tensor, hierarchy: Hierarchy) -> list[int]:
    """Return `mistakes_by_distance` from the `contributions` of all examples, whose first k is 1."""
    counts: list[int] = added[added[:, 0] == 0, 1].bincount(minlength=hierarchy.height + 1).tolist()
    return counts


def evaluate(
    scores: Tensor | ArrayLike,
    targets: Tensor | ArrayLike,
    hierarchy: Hierarchy,
    ks: Sequence[int] = DEFAULT_KS,
) -> dict[str, float]:
    """Compute the paper's metrics (Liang & Davis, ICCV 2023, section 4, "Evaluation Metrics").

    Args:
        scores: [N, K], larger = ranked earlier, ties to the lower class index; of a data frame, the columns that it
            names.
        targets: [N] class indices.
        hierarchy: over the K classes; its `distances` are the unit of severity and hierdist.
        ks: the k of hierdist@k; those above K are left out.

    Returns:
        top1: per cent of examples whose top-ranked class is the target.
        mistake_severity: mean distance of the top-ranked class over mistakes only; NaN without mistakes.
        hierdist@k: mean over examples of the mean distance of the top k classes.

    Raises:
        ValueError: no examples, wrong shapes, scores that are not real numbers (such as bool, object, strings or
            complex), a target that is not a class, or a NaN score.
    """
    return _tally(scores, targets, hierarchy, ks).metrics()


def _given(scores: Tensor | ArrayLike, targets: Tensor | ArrayLike, hierarchy: Hierarchy) -> tuple[Tensor, Tensor]:
    """Return scores [N, K] and targets [N] as tensors; a data frame's columns are matched by their names."""
    targets = rows_in_order(scores, targets, "scores")
    scores = scores_by_class(scores, hierarchy, "scores")
    return as_tensor(scores, "scores must be real numbers [N, K]"), as_tensor(targets, "targets must be integers [N]")


def _tally(scores: Tensor | ArrayLike, targets: Tensor | ArrayLike, hierarchy: Hierarchy, ks: Sequence[int]) -> Tally:
    scores, targets = _given(scores, targets, hierarchy)
    check_shapes(scores, targets, hierarchy.num_classes)
    tally = Tally(hierarchy, ks)
    for part, part_targets in zip(
        scores.split(EXAMPLES_PER_CHUNK), targets.to(scores.device).split(EXAMPLES_PER_CHUNK), strict=True
    ):
        tally.add(part, part_targets)
    return tally


def mistakes_by_distance(scores: Tensor | ArrayLike, targets: Tensor | ArrayLike, hierarchy: Hierarchy) -> list[int]:
    """Count the mistakes at each hierarchical distance: entry d counts those d away from the target, entry 0 is 0.

    Takes scores [N, K] and targets [N] as `evaluate` does, with the same errors.
    """
    return _tally(scores, targets, hierarchy, (1,)).mistakes_by_distance()
