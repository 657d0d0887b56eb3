"""From the arguments of the metrics' functions to a metric of the registry.

Shapes: N examples, K classes, L levels.
"""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from hierbench.hierarchy.class_names import class_indices, rows_in_order, scores_by_class
from hierbench.hierarchy.label_tree import Hierarchy
from hierbench.metrics.calibration import as_probabilities
from hierbench.metrics.level_metrics import levels_from_paths
from hierbench.metrics.metric_inputs import Evidence
from hierbench.metrics.metric_table import compute_metrics, find_metric
from hierbench.metrics.ranked_classes import INTEGERS, as_tensor

Average = Literal["micro", "macro"]
Labels = Sequence[Any] | None


def checked_average(average: Average) -> Average:
    """Return the kind of average; a ValueError for an unknown one."""
    if average not in ("micro", "macro"):
        raise ValueError(f'average must be "micro" or "macro", got {average!r}')
    return average


def metric_of_classes(name: str, y_true: Any, y_pred: Any, tree: Hierarchy) -> float:
    """Return a metric of the registry of predicted classes."""
    info = find_metric(name, tree)
    family = name.partition("@")[0]
    true = _as_class_indices(y_true, tree, "y_true")
    predicted = _as_class_indices(y_pred, tree, "y_pred")
    _check_lengths(true, predicted, "y_pred")
    needs = predicted
    if family in ("top1", "mistake_severity", "hierdist"):
        needs = predicted[:, None]  # ranked classes, of which there is one
    elif family == "level_accuracy":
        needs = levels_from_paths(predicted, tree)
    return fraction(name, info.compute_from((needs,), true, tree))


def metric_of_scores(name: str, y_true: Any, y_score: Any, tree: Hierarchy, labels: Labels) -> float:
    """Return a metric of the registry of scores; the columns of a data frame are as it names them, without labels."""
    info = find_metric(name, tree)  # an error for a k or level that the tree does not have
    true = _as_class_indices(rows_in_order(y_score, y_true, "y_score"), tree, "y_true")
    y_score = scores_by_class(y_score, tree, "y_score") if labels is None else y_score
    scores = as_tensor(y_score, "y_score must be real numbers [N, K]")
    if scores.ndim != 2 or scores.shape[1] != tree.num_classes:
        raise ValueError(f"y_score must be [N, {tree.num_classes}], a column per class, got {tuple(scores.shape)}")
    _check_lengths(true, scores, "y_score")
    if labels is not None:
        scores = scores[:, _columns(labels, tree)]
    if scores.dtype in INTEGERS:
        scores = scores.double()
    probabilities = scores if info.ranked else as_probabilities(scores)
    evidence = Evidence(scores, true.to(scores.device), tree, probabilities)
    return fraction(name, compute_metrics([name], evidence)[name])


def metric_of_levels(name: str, y_true: Any, y_levels: Any, tree: Hierarchy) -> float:
    """Return a metric of the registry of a prediction per level."""
    levels = as_tensor(y_levels, "y_levels must be integers [N, L]")
    true = _as_class_indices(y_true, tree, "y_true")
    return fraction(name, find_metric(name).compute_from((levels,), true.to(levels.device), tree))


def fraction(name: str, value: float) -> float:
    """Return a value of the registry, which is in per cent where its metric is, as functions return it."""
    return value / find_metric(name).scale


def _as_class_indices(values: Any, tree: Hierarchy, name: str) -> Tensor:
    """Return class indices [N] of class indices or names; a ValueError unless they are one per example, N > 0."""
    values = values.detach().cpu() if hasattr(values, "detach") else values
    array = values if np.ma.is_masked(values) else np.asarray(values)
    if array.ndim != 1:
        raise ValueError(f"{name} must have one class per example, [N], got the shape {array.shape}")
    if not len(array):
        raise ValueError(f"{name} is empty: no examples to evaluate")
    return torch.from_numpy(class_indices(array, tree, name))


def _columns(labels: Sequence[Any], tree: Hierarchy) -> Tensor:
    """Return for each class of the tree its column; a ValueError unless each has one."""
    columns = _as_class_indices(labels, tree, "labels")
    if len(columns) != tree.num_classes or len(columns.unique()) != tree.num_classes:
        raise ValueError(
            f"labels must name each of the {tree.num_classes} classes of the tree once, got {len(columns)}"
        )
    return columns.argsort()


def _check_lengths(true: Any, other: Any, name: str) -> None:
    if len(true) != len(other):
        raise ValueError(f"y_true has {len(true):,} examples, {name} {len(other):,}")
