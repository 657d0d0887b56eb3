"""Inputs of the metric functions: classes by name or index, scores in any order of the classes.

Shapes: N examples, K classes, L levels.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hierbench.hierarchy.names import class_indices, in_order_of_tree, named_columns
from hierbench.hierarchy.tree import Hierarchy, IntArray
from hierbench.metrics.calibration import probabilities_of
from hierbench.metrics.evidence import Evidence
from hierbench.metrics.ranking import INTEGERS, as_tensor
from hierbench.metrics.registry import compute_metrics, find_metric


def classes_of(values: Any, tree: Hierarchy, what: str) -> IntArray:
    """Return class indices [N] of an array, list, series or tensor of class indices or names.

    Raises:
        ValueError: it is not one-dimensional, is empty, or one is no class.
    """
    found = _array(values)
    if found.ndim != 1:
        raise ValueError(f"{what} must have one class per example, [N], got the shape {found.shape}")
    if not len(found):
        raise ValueError(f"{what} is empty: no examples to evaluate")
    return class_indices(found, tree, what)


def pair_of(y_true: Any, y_pred: Any, tree: Hierarchy) -> tuple[IntArray, IntArray]:
    """Return true and predicted class indices, [N] each; errors as `classes_of`, and for different lengths."""
    true, predicted = classes_of(y_true, tree, "y_true"), classes_of(y_pred, tree, "y_pred")
    _check_lengths(true, predicted, "y_pred")
    return true, predicted


def of_scores(
    name: str,
    y_true: Any,
    y_score: Any,
    tree: Hierarchy,
    labels: Sequence[Any] | None = None,
) -> float:
    """Return a metric of the registry, see the functions for the arguments.

    The columns of a data frame are those that their names say, unless there are labels.
    """
    find_metric(name, tree)  # a k or level that the tree does not have
    true = classes_of(y_true, tree, "y_true")
    if labels is None and (names := named_columns(y_score)):
        y_score = in_order_of_tree(np.asarray(y_score), names, tree, "y_score")
    scores = as_tensor(y_score, "y_score must be real numbers [N, K]")
    if scores.ndim != 2 or scores.shape[1] != tree.num_classes:
        raise ValueError(f"y_score must be [N, {tree.num_classes}], a column per class, got {tuple(scores.shape)}")
    _check_lengths(true, scores, "y_score")
    if labels is not None:
        scores = scores[:, _columns(labels, tree)]
    if scores.dtype in INTEGERS:
        scores = scores.double()
    targets = torch.from_numpy(true).to(scores.device)
    evidence = Evidence(scores, targets, tree, probabilities_of(scores))
    return compute_metrics([name], evidence)[name]


def _columns(labels: Sequence[Any], tree: Hierarchy) -> list[int]:
    """Return for each class of the tree its column; a ValueError unless each has one."""
    found = classes_of(labels, tree, "labels")
    if len(found) != tree.num_classes or len(np.unique(found)) != tree.num_classes:
        raise ValueError(f"labels must name each of the {tree.num_classes} classes of the tree once, got {len(found)}")
    order: list[int] = np.argsort(found).tolist()
    return order


def _check_lengths(true: Any, other: Any, what: str) -> None:
    if len(true) != len(other):
        raise ValueError(f"y_true has {len(true):,} examples, {what} {len(other):,}")


def _array(values: Any) -> NDArray[Any]:
    """Return an array of a list, a series or a tensor on any device."""
    return np.asarray(values.detach().cpu() if hasattr(values, "detach") else values)
