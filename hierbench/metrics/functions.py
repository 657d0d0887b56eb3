"""A function per metric in the way of scikit-learn: y_true, then y_pred, y_score or y_levels, then the tree.

Shapes: N examples, K classes, L levels. Classes are indices in the tree's order or names. A larger score ranks earlier;
ties go to the lower class index. Where probabilities are needed they are the scores if every row is a distribution to
1%, else their softmax. Values are between 0 and 1 where tables print per cent; distances are in edges. Formulas: target
y, predicted class c, ranked classes c_1, c_2, ...; A(n) the nodes from below the root down to n; D the hierarchical
distance; LCA the lowest common ancestor; p probabilities.
"""

from collections.abc import Callable, Sequence
from textwrap import fill
from typing import Any, Literal, TypeVar

import numpy as np
import torch
from torch import Tensor

from hierbench.hierarchy.class_names import class_indices, rows_in_order, scores_by_class
from hierbench.hierarchy.label_tree import Hierarchy
from hierbench.metrics.calibration import as_probabilities
from hierbench.metrics.level_metrics import levels_from_paths
from hierbench.metrics.metric_inputs import Evidence
from hierbench.metrics.metric_table import SPEC_BY_NAME, compute_metrics, find_metric
from hierbench.metrics.ranked_classes import INTEGERS, as_tensor

Average = Literal["micro", "macro"]
Labels = Sequence[Any] | None
INDENT = "    "  # of a docstring
EXAMPLE_TREE = """\
        >>> from hierbench import Hierarchy, metrics
        >>> tree = Hierarchy.from_paths({"oak": ("plant", "oak"), "fern": ("plant", "fern"), "cat": ("animal", "cat")})
"""
Function = TypeVar("Function", bound=Callable[..., float])


def _described(*names: str) -> Callable[[Function], Function]:
    """Complete the docstring of a function by the unit, source and formula of its metrics, and the example's tree."""

    def with_description(function: Function) -> Function:
        infos = [SPEC_BY_NAME.get(name) or find_metric(name) for name in names]
        columns = " and ".join(f"`{info.name}`" for info in infos)
        unit = "a fraction" if infos[0].unit in ("%", "") else f"in {infos[0].unit}"
        formulas = [info.formula if len(infos) == 1 else f"{info.name}, {info.formula}" for info in infos]
        paragraphs = (
            f"{columns} of tables; {unit}, {infos[0].better} is better. Source: {infos[0].source}.",
            f"Formula{'s' * (len(infos) > 1)}: {'; '.join(formulas)}.",
        )
        first, _, rest = (function.__doc__ or "").partition("\n")
        filled = [fill(text, 116, initial_indent=INDENT, subsequent_indent=INDENT) for text in paragraphs]
        rest = rest.replace("Example:\n", f"Example:\n{EXAMPLE_TREE}")
        function.__doc__ = "\n\n".join([first, *filled, rest.removeprefix("\n")])
        return function

    return with_description


@_described("top1")
def top1_score(y_true: Any, y_pred: Any, tree: Hierarchy) -> float:
    """Return the fraction of examples whose class is right.

    Args:
        y_true: [N] classes.
        y_pred: [N] classes.
        tree: over the K classes.

    Raises:
        ValueError: no examples, different lengths, or not a class of the tree.

    Example:
        >>> metrics.top1_score(["oak", "fern", "cat", "cat"], ["oak", "oak", "fern", "cat"], tree)
        0.5
    """
    return _of_classes("top1", y_true, y_pred, tree)


@_described("mistake_severity")
def mistake_severity(y_true: Any, y_pred: Any, tree: Hierarchy) -> float:
    """Return the mean distance of mistakes from their targets; NaN without mistakes.

    Arguments and errors as in `top1_score`.

    Example:
        >>> metrics.mistake_severity(["oak", "fern", "cat", "cat"], ["oak", "oak", "fern", "cat"], tree)
        1.5
    """
    return _of_classes("mistake_severity", y_true, y_pred, tree)


@_described("hierdist@1")
def hierarchical_distance(y_true: Any, y_pred: Any, tree: Hierarchy) -> float:
    """Return the mean distance of all examples from their targets, 0 for correct predictions.

    Arguments and errors as in `top1_score`.

    Example:
        >>> metrics.hierarchical_distance(["oak", "fern", "cat", "cat"], ["oak", "oak", "fern", "cat"], tree)
        0.75
    """
    return _of_classes("hierdist@1", y_true, y_pred, tree)


@_described("level_accuracy@l")
def level_accuracy_score(y_true: Any, y_pred: Any, tree: Hierarchy, *, level: int = 1) -> float:
    """Return the fraction of examples whose ancestor at a level is right.

    A class above the deepest level is repeated below itself.

    Args:
        y_true: [N] classes.
        y_pred: [N] classes.
        tree: over the K classes.
        level: 1, the coarsest, to L, the classes.

    Raises:
        ValueError: as in `top1_score`; or a level that the tree does not have.

    Example:
        >>> metrics.level_accuracy_score(["oak", "fern", "cat", "cat"], ["oak", "oak", "fern", "cat"], tree, level=1)
        0.75
    """
    return _of_classes(f"level_accuracy@{level}", y_true, y_pred, tree)


@_described("hp_micro", "hp_macro")
def hierarchical_precision_score(y_true: Any, y_pred: Any, tree: Hierarchy, *, average: Average = "micro") -> float:
    """Return hP, the fraction of the predicted class's ancestors (and itself) that are the target's too.

    The root counts nowhere.

    Args:
        y_true: [N] classes.
        y_pred: [N] classes.
        tree: over the K classes.
        average: "micro", the ratio of two sums over examples, or "macro", the mean of each example's ratio, which
            scikit-learn calls "samples".

    Raises:
        ValueError: as in `top1_score`; or another average.

    Example:
        >>> metrics.hierarchical_precision_score(["oak", "fern", "cat"], ["oak", "oak", "fern"], tree)
        0.5
    """
    return _of_classes(f"hp_{_checked(average)}", y_true, y_pred, tree)


@_described("hr_micro", "hr_macro")
def hierarchical_recall_score(y_true: Any, y_pred: Any, tree: Hierarchy, *, average: Average = "micro") -> float:
    """Return hR, the fraction of the target's ancestors (and itself) that are the predicted class's too.

    Arguments and errors as in `hierarchical_precision_score`.

    Example:
        >>> metrics.hierarchical_recall_score(["oak", "fern", "cat"], ["oak", "oak", "fern"], tree)
        0.5
    """
    return _of_classes(f"hr_{_checked(average)}", y_true, y_pred, tree)


@_described("hf_micro", "hf_macro")
def hf1_score(y_true: Any, y_pred: Any, tree: Hierarchy, *, average: Average = "micro") -> float:
    """Return hF1, the harmonic mean of hierarchical precision and recall.

    Arguments and errors as in `hierarchical_precision_score`.

    Example:
        >>> metrics.hf1_score(["oak", "fern", "cat"], ["oak", "oak", "fern"], tree)
        0.5
    """
    return _of_classes(f"hf_{_checked(average)}", y_true, y_pred, tree)


@_described("information_severity")
def information_severity(y_true: Any, y_pred: Any, tree: Hierarchy) -> float:
    """Return how many bits the common ancestor of a mistake and its target leaves open; NaN without mistakes.

    Arguments and errors as in `top1_score`.

    Example:
        >>> metrics.information_severity(["oak", "fern"], ["fern", "oak"], tree)
        1.0
    """
    return _of_classes("information_severity", y_true, y_pred, tree)


@_described("hierdist@k")
def hierdist_at_k_loss(y_true: Any, y_score: Any, tree: Hierarchy, *, k: int = 5, labels: Labels = None) -> float:
    """Return the mean distance of the k best-ranked classes from the target.

    Args:
        y_true: [N] classes, indices in the tree's order or names.
        y_score: [N, K], larger = ranked earlier.
        tree: over the K classes.
        k: from 1 to K.
        labels: [K] the classes of the columns, such as `classes_` of a scikit-learn estimator; by default the columns
            of a data frame are as they are named, others in the tree's order.

    Raises:
        ValueError: no examples, wrong shapes, not a class of the tree, a NaN, a k above K.

    Example:
        >>> metrics.hierdist_at_k_loss(["oak", "cat"], [[0.6, 0.3, 0.1], [0.1, 0.2, 0.7]], tree, k=2)
        0.75
    """
    return _of_scores(f"hierdist@{k}", y_true, y_score, tree, labels)


@_described("min_distance@k")
def min_distance_at_k_loss(y_true: Any, y_score: Any, tree: Hierarchy, *, k: int = 5, labels: Labels = None) -> float:
    """Return the mean distance of the nearest of the k best-ranked classes from the target.

    Arguments and errors as in `hierdist_at_k_loss`.

    Example:
        >>> metrics.min_distance_at_k_loss(["oak", "cat"], [[0.3, 0.6, 0.1], [0.7, 0.2, 0.1]], tree, k=2)
        1.0
    """
    return _of_scores(f"min_distance@{k}", y_true, y_score, tree, labels)


@_described("hops@k")
def hops_score(y_true: Any, y_score: Any, tree: Hierarchy, *, k: int | None = None, labels: Labels = None) -> float:
    """Return HOPS, the agreement of the ranking with the order of the classes' distances from the target; 1 is best.

    Arguments and errors as in `hierdist_at_k_loss`; without k, all classes. See `hierbench.metrics.hops`.

    Example:
        >>> metrics.hops_score(["oak", "cat"], [[0.6, 0.3, 0.1], [0.1, 0.2, 0.7]], tree)
        1.0
    """
    return _of_scores("hops" if k is None else f"hops@{k}", y_true, y_score, tree, labels)


@_described("level_accuracy_lifted@l")
def lifted_level_accuracy_score(
    y_true: Any, y_score: Any, tree: Hierarchy, *, level: int = 1, labels: Labels = None
) -> float:
    """Return the fraction of examples whose most probable node of a level is right.

    Level 1 is the coarsest. Other arguments and errors as in `hierdist_at_k_loss`.

    Example:
        >>> metrics.lifted_level_accuracy_score(["oak", "oak"], [[0.3, 0.3, 0.4], [0.1, 0.2, 0.7]], tree, level=1)
        0.5
    """
    return _of_scores(f"level_accuracy_lifted@{level}", y_true, y_score, tree, labels)


@_described("ece")
def expected_calibration_error(y_true: Any, y_score: Any, tree: Hierarchy, *, labels: Labels = None) -> float:
    """Return ECE, the mean gap between accuracy and confidence.

    Arguments and errors as in `hierdist_at_k_loss`.

    Example:
        >>> metrics.expected_calibration_error(["oak", "cat"], [[0.75, 0.25, 0.0], [0.75, 0.0, 0.25]], tree)
        0.25
    """
    return _of_scores("ece", y_true, y_score, tree, labels)


@_described("mce")
def maximum_calibration_error(y_true: Any, y_score: Any, tree: Hierarchy, *, labels: Labels = None) -> float:
    """Return MCE, the largest gap between accuracy and confidence.

    Arguments and errors as in `hierdist_at_k_loss`.

    Example:
        >>> metrics.maximum_calibration_error(["oak", "cat"], [[0.75, 0.25, 0.0], [0.0, 0.5, 0.5]], tree)
        0.5
    """
    return _of_scores("mce", y_true, y_score, tree, labels)


@_described("haurc_climbing", "haurc_selective")
def haurc_loss(
    y_true: Any,
    y_score: Any,
    tree: Hierarchy,
    *,
    rule: Literal["climbing", "selective"] = "climbing",
    labels: Labels = None,
) -> float:
    """Return hAURC, the area under hierarchical risk over coverage.

    A prediction is the lowest ancestor of the best class whose probability reaches a threshold ("climbing"), or the
    class itself or else the root ("selective"). Other arguments and errors as in `hierdist_at_k_loss`; see
    `hierbench.metrics.selective`.

    Example:
        >>> metrics.haurc_loss(["oak", "cat"], [[0.75, 0.25, 0.0], [0.0, 0.0, 1.0]], tree)
        0.0
    """
    if rule not in ("climbing", "selective"):
        raise ValueError(f'rule must be "climbing" or "selective", got {rule!r}')
    return _of_scores(f"haurc_{rule}", y_true, y_score, tree, labels)


@_described("fpa")
def full_path_accuracy_score(y_true: Any, y_levels: Any, tree: Hierarchy) -> float:
    """Return FPA, the fraction of examples whose node is right at every level.

    Args:
        y_true: [N] classes, indices in the tree's order or names.
        y_levels: [N, L] node index per level, coarsest first, as in `Hierarchy.level_targets`.
        tree: over the K classes.

    Raises:
        ValueError: no examples, wrong shapes, or not a class or a node of its level.

    Example:
        >>> metrics.full_path_accuracy_score(["oak", "cat"], [[1, 0], [1, 2]], tree)  # animal 0, plant 1
        0.5
    """
    return _of_levels("fpa", y_true, y_levels, tree)


@_described("tice")
def tree_inconsistency_loss(y_true: Any, y_levels: Any, tree: Hierarchy) -> float:
    """Return TICE, the fraction of examples whose nodes are not one path.

    Whether the path is right does not matter, so that y_true is only checked. Arguments and errors as in
    `full_path_accuracy_score`.

    Example:
        >>> metrics.tree_inconsistency_loss(["oak", "cat"], [[1, 0], [1, 2]], tree)  # a cat is no plant
        0.5
    """
    return _of_levels("tice", y_true, y_levels, tree)


def _checked(average: Average) -> Average:
    if average not in ("micro", "macro"):
        raise ValueError(f'average must be "micro" or "macro", got {average!r}')
    return average


def _of_classes(name: str, y_true: Any, y_pred: Any, tree: Hierarchy) -> float:
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
    return _fraction(name, info.compute_from((needs,), true, tree))


def _of_scores(name: str, y_true: Any, y_score: Any, tree: Hierarchy, labels: Labels) -> float:
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
    return _fraction(name, compute_metrics([name], evidence)[name])


def _of_levels(name: str, y_true: Any, y_levels: Any, tree: Hierarchy) -> float:
    """Return a metric of the registry of a prediction per level."""
    levels = as_tensor(y_levels, "y_levels must be integers [N, L]")
    true = _as_class_indices(y_true, tree, "y_true")
    return _fraction(name, find_metric(name).compute_from((levels,), true.to(levels.device), tree))


def _fraction(name: str, value: float) -> float:
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
