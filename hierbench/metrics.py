"""Top-1 accuracy, mistake severity and hierarchical distance at k, as exact integer sums over examples.

Shapes: N examples, K classes, k ranked predictions. A score ranks classes: larger is earlier, ties go to the lower
class index. All sums are integers, so results do not depend on batching, device or the number of processes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from hierbench.hierarchy import Hierarchy

DEFAULT_KS = (1, 5, 20)


def top_classes(scores: Tensor, k: int) -> Tensor:
    """Return the k best-ranked classes of each row, ties going to the lower class index.

    Args:
        scores: [N, K], larger = ranked earlier.
        k: 1 <= k <= K.

    Returns:
        [N, k] int64 class indices, best first.

    Raises:
        ValueError: a score is NaN.
    """
    num_classes = scores.shape[1]
    if k == num_classes:
        values, classes = scores.sort(dim=1, descending=True, stable=True)
    else:
        values, classes = scores.topk(k + 1, dim=1)
    if values.is_floating_point() and values[:, 0].isnan().any():  # NaN sorts before every number
        raise ValueError("a score is NaN: it has no rank")
    if k == num_classes:
        return classes
    # topk leaves the order among equals open, so rows with equals among the first k + 1 are ranked again.
    tied = (values[:, 1:] == values[:, :-1]).any(dim=1).nonzero().squeeze(1)
    classes = classes[:, :k]
    if len(tied):
        classes[tied] = _top_classes_of_tied(scores[tied], values[tied, k - 1 : k], k)
    return classes


def _top_classes_of_tied(scores: Tensor, kth_value: Tensor, k: int) -> Tensor:
    """Take all classes above the k-th value, fill up with the lowest of its equals, and sort the k stably."""
    above, equal = scores > kth_value, scores == kth_value
    places = k - above.sum(dim=1, keepdim=True)
    chosen = above | (equal & (equal.cumsum(dim=1, dtype=torch.int32) <= places))
    classes = chosen.nonzero()[:, 1].view(len(scores), k)  # ascending, so a stable sort keeps the lower index first
    order = scores.gather(1, classes).sort(dim=1, descending=True, stable=True).indices
    return classes.gather(1, order)


@lru_cache(maxsize=8)
def _distances_on(hierarchy: Hierarchy, device: torch.device) -> Tensor:
    return torch.tensor(hierarchy.distances, dtype=torch.int32, device=device)


def usable_ks(ks: Sequence[int], num_classes: int) -> tuple[int, ...]:
    """Return the ks that K classes allow, 1 always among them (it carries the mistakes)."""
    if any(k != int(k) or k < 1 for k in ks):
        raise ValueError(f"k must be a whole number of at least 1, got {tuple(ks)}")
    return tuple(sorted({1, *(k for k in ks if k <= num_classes)}))


def distance_counts(scores: Tensor, targets: Tensor, hierarchy: Hierarchy, ks: Sequence[int]) -> Tensor:
    """Sum what every metric needs over a batch; the sums of two batches add up to those of their union.

    Args:
        scores: [N, K], larger = ranked earlier; any device.
        targets: [N] int class indices, same device.
        hierarchy: over the K classes.
        ks: as `usable_ks` returns them.

    Returns:
        [2 + len(ks)] int64: examples, correct ones, then for each k the distances summed over examples and the k
        classes ranked first.

    Raises:
        ValueError: shapes do not fit, a target is no class, or a score is NaN.
    """
    num_classes = hierarchy.num_classes
    if scores.ndim != 2 or scores.shape[1] != num_classes or targets.shape != scores.shape[:1]:
        shapes = f"{tuple(scores.shape)} and {tuple(targets.shape)}"
        raise ValueError(f"scores and targets must be [N, {num_classes}] and [N], got {shapes}")
    if not len(scores):
        return torch.zeros(2 + len(ks), dtype=torch.int64, device=scores.device)
    wrong_type = targets.is_floating_point() or targets.dtype == torch.bool
    if wrong_type or int(targets.min()) < 0 or int(targets.max()) >= num_classes:
        raise ValueError(f"targets must be integers from 0 to {num_classes - 1}")
    targets = targets.long()
    classes = top_classes(scores, max(ks))
    distances = _distances_on(hierarchy, scores.device)[targets[:, None], classes]
    sums = distances.sum(dim=0, dtype=torch.int64).cumsum(0)
    correct = (classes[:, 0] == targets).sum()
    examples = torch.full_like(correct, len(scores))
    return torch.stack([examples, correct, *(sums[k - 1] for k in ks)])


def metrics_from_counts(counts: Sequence[int], ks: Sequence[int]) -> dict[str, float]:
    """Turn the sums of `distance_counts` into metrics; see `evaluate` for their names."""
    examples, correct, *sums = counts
    if not examples:
        raise ValueError("no examples to evaluate")
    mistakes = examples - correct
    distance_of_first = sums[list(ks).index(1)]
    metrics = {
        "top1": 100.0 * correct / examples,
        "mistake_severity": distance_of_first / mistakes if mistakes else math.nan,
    }
    return metrics | {f"hierdist@{k}": total / (k * examples) for k, total in zip(ks, sums, strict=True)}


def evaluate(
    scores: Tensor | ArrayLike,
    targets: Tensor | ArrayLike,
    hierarchy: Hierarchy,
    ks: Sequence[int] = DEFAULT_KS,
) -> dict[str, float]:
    """Compute the paper's metrics (Liang & Davis, ICCV 2023, section 4, "Evaluation Metrics").

    Args:
        scores: [N, K], larger = ranked earlier, ties to the lower class index.
        targets: [N] class indices.
        hierarchy: over the K classes; its `distances` are the unit of severity and hierdist.
        ks: the k of hierdist@k; those above K are left out.

    Returns:
        top1: per cent of examples whose first class is the target.
        mistake_severity: mean distance of the first class over the mistakes alone; NaN without mistakes.
        hierdist@k: mean over examples of the mean distance of the k classes ranked first.

    Raises:
        ValueError: no examples, shapes that do not fit, a target that is no class, a NaN score.
    """
    scores, targets = torch.as_tensor(scores), torch.as_tensor(targets)
    ks = tuple(ks)
    usable = usable_ks(ks, hierarchy.num_classes)
    metrics = metrics_from_counts(distance_counts(scores, targets, hierarchy, usable).tolist(), usable)
    return {name: value for name, value in metrics.items() if name != "hierdist@1" or 1 in ks}


def mistakes_by_distance(scores: Tensor, targets: Tensor, hierarchy: Hierarchy) -> list[int]:
    """Count the mistakes at each hierarchical distance: entry d counts those d away from the target, entry 0 is 0.

    Args:
        scores: [N, K], larger = ranked earlier.
        targets: [N] class indices.
        hierarchy: over the K classes.
    """
    first = top_classes(scores, 1)[:, 0]
    wrong = first != targets
    distances = _distances_on(hierarchy, scores.device)[targets[wrong], first[wrong]]
    counts: list[int] = distances.bincount(minlength=hierarchy.height + 1).tolist()
    return counts
