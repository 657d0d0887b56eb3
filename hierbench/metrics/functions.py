"""A function per metric in the way of scikit-learn: y_true, then y_pred, y_score or y_levels, then the tree.

Shapes: N examples, K classes, L levels. Classes are indices in the tree's order or names. A larger score ranks earlier;
ties go to the lower class index. Where probabilities are needed they are the scores if every row is a distribution,
else their softmax. Values are between 0 and 1 where tables print per cent; distances are in edges. Formulas: target y,
predicted class c, ranked classes c_1, c_2, ...; A(n) the nodes from below the root down to n; D the hierarchical
distance; LCA the lowest common ancestor; p probabilities.
"""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from hierbench.hierarchy.names import class_indices, in_order_of_tree, named_columns
from hierbench.hierarchy.tree import Hierarchy
from hierbench.metrics.calibration import probabilities_of
from hierbench.metrics.computations import value_of
from hierbench.metrics.evidence import Evidence
from hierbench.metrics.levels import levels_of
from hierbench.metrics.ranking import INTEGERS, as_tensor
from hierbench.metrics.registry import compute_metrics, find_metric

Average = Literal["micro", "macro"]
Labels = Sequence[Any] | None


def top1_score(y_true: Any, y_pred: Any, tree: Hierarchy) -> float:
    """Return the fraction of examples whose class is right, `top1` of tables: mean [c = y].

    Args:
        y_true: [N] classes.
        y_pred: [N] classes.
        tree: over the K classes.

    Raises:
        ValueError: no examples, different lengths, or what is no class of the tree.

    Example:
        >>> from hierbench import Hierarchy, metrics
        >>> tree = Hierarchy.from_paths({"oak": ("plant", "oak"), "fern": ("plant", "fern"), "cat": ("animal", "cat")})
        >>> metrics.top1_score(["oak", "fern", "cat", "cat"], ["oak", "oak", "fern", "cat"], tree)
        0.5
    """
    return _of_classes("top1", y_true, y_pred, tree)


def mistake_severity(y_true: Any, y_pred: Any, tree: Hierarchy) -> float:
    """Return the mean over mistakes of D(y, c), in edges; lower is better, NaN without mistakes.

    Arguments and errors as in `top1_score`. Source: Liang & Davis, ICCV 2023, section 4.

    Example:
        >>> from hierbench import Hierarchy, metrics
        >>> tree = Hierarchy.from_paths({"oak": ("plant", "oak"), "fern": ("plant", "fern"), "cat": ("animal", "cat")})
        >>> metrics.mistake_severity(["oak", "fern", "cat", "cat"], ["oak", "oak", "fern", "cat"], tree)
        1.5
    """
    return _of_classes("mistake_severity", y_true, y_pred, tree)


def hierarchical_distance(y_true: Any, y_pred: Any, tree: Hierarchy) -> float:
    """Return the mean over examples of D(y, c), in edges; lower is better. It is `hierdist@1` of tables.

    Arguments and errors as in `top1_score`. Source: Liang & Davis, ICCV 2023, section 4.

    Example:
        >>> from hierbench import Hierarchy, metrics
        >>> tree = Hierarchy.from_paths({"oak": ("plant", "oak"), "fern": ("plant", "fern"), "cat": ("animal", "cat")})
        >>> metrics.hierarchical_distance(["oak", "fern", "cat", "cat"], ["oak", "oak", "fern", "cat"], tree)
        0.75
    """
    return _of_classes("hierdist@1", y_true, y_pred, tree)


def level_accuracy_score(y_true: Any, y_pred: Any, tree: Hierarchy, *, level: int = 1) -> float:
    """Return the fraction of examples whose ancestor at a level is right: mean [A_l(c) = A_l(y)].

    A class above the deepest level is repeated below itself. Source: Chang et al., CVPR 2021.

    Args:
        y_true: [N] classes.
        y_pred: [N] classes.
        tree: over the K classes.
        level: 1, the coarsest, to L, the classes.

    Raises:
        ValueError: as in `top1_score`; or a level that the tree does not have.

    Example:
        >>> from hierbench import Hierarchy, metrics
        >>> tree = Hierarchy.from_paths({"oak": ("plant", "oak"), "fern": ("plant", "fern"), "cat": ("animal", "cat")})
        >>> metrics.level_accuracy_score(["oak", "fern", "cat", "cat"], ["oak", "oak", "fern", "cat"], tree, level=1)
        0.75
    """
    return _of_classes(f"level_accuracy@{level}", y_true, y_pred, tree)


def hierarchical_precision_score(y_true: Any, y_pred: Any, tree: Hierarchy, *, average: Average = "micro") -> float:
    """Return hP, the fraction of the predicted class's ancestors (and itself) that are the target's too.

    Source: Kiritchenko et al., Canadian AI 2006; Kosmopoulos et al., DMKD 2015. The root counts nowhere.

    Args:
        y_true: [N] classes.
        y_pred: [N] classes.
        tree: over the K classes.
        average: "micro", sum |A(c) & A(y)| / sum |A(c)|; or "macro", the mean over examples of the same fraction,
            which scikit-learn calls "samples".

    Raises:
        ValueError: as in `top1_score`; or another average.

    Example:
        >>> from hierbench import Hierarchy, metrics
        >>> tree = Hierarchy.from_paths({"oak": ("plant", "oak"), "fern": ("plant", "fern"), "cat": ("animal", "cat")})
        >>> metrics.hierarchical_precision_score(["oak", "fern", "cat"], ["oak", "oak", "fern"], tree)
        0.5
    """
    return _of_classes(f"hp_{_checked(average)}", y_true, y_pred, tree)


def hierarchical_recall_score(y_true: Any, y_pred: Any, tree: Hierarchy, *, average: Average = "micro") -> float:
    """Return hR, the fraction of the target's ancestors (and itself) that are the predicted class's too.

    Arguments, errors and source as in `hierarchical_precision_score`: "micro" is sum |A(c) & A(y)| / sum |A(y)|.

    Example:
        >>> from hierbench import Hierarchy, metrics
        >>> tree = Hierarchy.from_paths({"oak": ("plant", "oak"), "fern": ("plant", "fern"), "cat": ("animal", "cat")})
        >>> metrics.hierarchical_recall_score(["oak", "fern", "cat"], ["oak", "oak", "fern"], tree)
        0.5
    """
    return _of_classes(f"hr_{_checked(average)}", y_true, y_pred, tree)


def hf1_score(y_true: Any, y_pred: Any, tree: Hierarchy, *, average: Average = "micro") -> float:
    """Return hF1, the harmonic mean of hierarchical precision and recall.

    Arguments, errors and source as in `hierarchical_precision_score`: "micro" is 2 hP hR / (hP + hR), "macro" the mean
    over examples of 2 |A(c) & A(y)| / (|A(c)| + |A(y)|).

    Example:
        >>> from hierbench import Hierarchy, metrics
        >>> tree = Hierarchy.from_paths({"oak": ("plant", "oak"), "fern": ("plant", "fern"), "cat": ("animal", "cat")})
        >>> metrics.hf1_score(["oak", "fern", "cat"], ["oak", "oak", "fern"], tree)
        0.5
    """
    return _of_classes(f"hf_{_checked(average)}", y_true, y_pred, tree)


def information_severity(y_true: Any, y_pred: Any, tree: Hierarchy) -> float:
    """Return the mean over mistakes of log2(classes below LCA(y, c)), in bits; lower is better, NaN without mistakes.

    Arguments and errors as in `top1_score`. Source: Valmadre, NeurIPS 2022.

    Example:
        >>> from hierbench import Hierarchy, metrics
        >>> tree = Hierarchy.from_paths({"oak": ("plant", "oak"), "fern": ("plant", "fern"), "cat": ("animal", "cat")})
        >>> metrics.information_severity(["oak", "fern"], ["fern", "oak"], tree)
        1.0
    """
    return _of_classes("information_severity", y_true, y_pred, tree)


def hierdist_at_k_loss(y_true: Any, y_score: Any, tree: Hierarchy, *, k: int = 5, labels: Labels = None) -> float:
    """Return the mean over examples of (D(y, c_1) + ... + D(y, c_k)) / k, in edges: `hierdist@k` of tables.

    Source: Liang & Davis, ICCV 2023, section 4.

    Args:
        y_true: [N] classes, indices in the tree's order or names.
        y_score: [N, K], larger = ranked earlier.
        tree: over the K classes.
        k: from 1 to K.
        labels: [K] the classes of the columns, such as `classes_` of a scikit-learn estimator; by default the columns
            of a data frame are as they are named, others in the tree's order.

    Raises:
        ValueError: no examples, wrong shapes, what is no class of the tree, a NaN, a k above K.

    Example:
        >>> from hierbench import Hierarchy, metrics
        >>> tree = Hierarchy.from_paths({"oak": ("plant", "oak"), "fern": ("plant", "fern"), "cat": ("animal", "cat")})
        >>> metrics.hierdist_at_k_loss(["oak", "cat"], [[0.6, 0.3, 0.1], [0.1, 0.2, 0.7]], tree, k=2)
        0.75
    """
    return _of_scores(f"hierdist@{k}", y_true, y_score, tree, labels)


def min_distance_at_k_loss(y_true: Any, y_score: Any, tree: Hierarchy, *, k: int = 5, labels: Labels = None) -> float:
    """Return the mean over examples of min(D(y, c_1), ..., D(y, c_k)), in edges: `min_distance@k` of tables.

    Arguments and errors as in `hierdist_at_k_loss`. Source: ILSVRC 2010, hierarchical cost of the best of k guesses.

    Example:
        >>> from hierbench import Hierarchy, metrics
        >>> tree = Hierarchy.from_paths({"oak": ("plant", "oak"), "fern": ("plant", "fern"), "cat": ("animal", "cat")})
        >>> metrics.min_distance_at_k_loss(["oak", "cat"], [[0.3, 0.6, 0.1], [0.7, 0.2, 0.1]], tree, k=2)
        1.0
    """
    return _of_scores(f"min_distance@{k}", y_true, y_score, tree, labels)


def hops_score(y_true: Any, y_score: Any, tree: Hierarchy, *, k: int | None = None, labels: Labels = None) -> float:
    """Return HOPS, how far the ranking orders the classes by their distance from the target; 1 is best.

    mean of clip(1 - sum_j<=k w_j |r*_j - r_j| / sum_j<=k w_j |r*_j - r*_(k+1-j)|, 0, 1), see `hierbench.metrics.hops`.
    Arguments and errors as in `hierdist_at_k_loss`; without k, all classes. Source: Sani et al., CVPR 2026.

    Example:
        >>> from hierbench import Hierarchy, metrics
        >>> tree = Hierarchy.from_paths({"oak": ("plant", "oak"), "fern": ("plant", "fern"), "cat": ("animal", "cat")})
        >>> metrics.hops_score(["oak", "cat"], [[0.6, 0.3, 0.1], [0.1, 0.2, 0.7]], tree)
        1.0
    """
    return _of_scores("hops" if k is None else f"hops@{k}", y_true, y_score, tree, labels)


def lifted_level_accuracy_score(
    y_true: Any, y_score: Any, tree: Hierarchy, *, level: int = 1, labels: Labels = None
) -> float:
    """Return the fraction of examples whose most probable node of a level is right.

    mean [argmax over nodes n of level l of the sum of p below n = A_l(y)]; level 1 is the coarsest. Other arguments and
    errors as in `hierdist_at_k_loss`. Source: Valmadre, NeurIPS 2022.

    Example:
        >>> from hierbench import Hierarchy, metrics
        >>> tree = Hierarchy.from_paths({"oak": ("plant", "oak"), "fern": ("plant", "fern"), "cat": ("animal", "cat")})
        >>> metrics.lifted_level_accuracy_score(["oak", "oak"], [[0.3, 0.3, 0.4], [0.1, 0.2, 0.7]], tree, level=1)
        0.5
    """
    return _of_scores(f"level_accuracy_lifted@{level}", y_true, y_score, tree, labels)


def expected_calibration_error(y_true: Any, y_score: Any, tree: Hierarchy, *, labels: Labels = None) -> float:
    """Return ECE: the sum over 15 bins of |bin| / N |accuracy - confidence|, between 0 and 1; lower is better.

    Arguments and errors as in `hierdist_at_k_loss`. Source: Guo et al., ICML 2017.

    Example:
        >>> from hierbench import Hierarchy, metrics
        >>> tree = Hierarchy.from_paths({"oak": ("plant", "oak"), "fern": ("plant", "fern"), "cat": ("animal", "cat")})
        >>> metrics.expected_calibration_error(["oak", "cat"], [[0.75, 0.25, 0.0], [0.75, 0.0, 0.25]], tree)
        0.25
    """
    return _of_scores("ece", y_true, y_score, tree, labels)


def maximum_calibration_error(y_true: Any, y_score: Any, tree: Hierarchy, *, labels: Labels = None) -> float:
    """Return MCE: the largest |accuracy - confidence| of 15 bins, between 0 and 1; lower is better.

    Arguments and errors as in `hierdist_at_k_loss`. Source: Guo et al., ICML 2017.

    Example:
        >>> from hierbench import Hierarchy, metrics
        >>> tree = Hierarchy.from_paths({"oak": ("plant", "oak"), "fern": ("plant", "fern"), "cat": ("animal", "cat")})
        >>> metrics.maximum_calibration_error(["oak", "cat"], [[0.75, 0.25, 0.0], [0.0, 0.5, 0.5]], tree)
        0.5
    """
    return _of_scores("mce", y_true, y_score, tree, labels)


def haurc_loss(
    y_true: Any,
    y_score: Any,
    tree: Hierarchy,
    *,
    rule: Literal["climbing", "selective"] = "climbing",
    labels: Labels = None,
) -> float:
    """Return hAURC, the area under hierarchical risk over coverage; between 0 and 1.

    A prediction is the lowest ancestor of the best class whose probability reaches a threshold ("climbing"), or the
    class itself or else the root ("selective"). Other arguments and errors as in `hierdist_at_k_loss`. Source: Goren et
    al., NeurIPS 2024; see `hierbench.metrics.selective`.

    Example:
        >>> from hierbench import Hierarchy, metrics
        >>> tree = Hierarchy.from_paths({"oak": ("plant", "oak"), "fern": ("plant", "fern"), "cat": ("animal", "cat")})
        >>> metrics.haurc_loss(["oak", "cat"], [[0.75, 0.25, 0.0], [0.0, 0.0, 1.0]], tree)
        0.0
    """
    if rule not in ("climbing", "selective"):
        raise ValueError(f'rule must be "climbing" or "selective", got {rule!r}')
    return _of_scores(f"haurc_{rule}", y_true, y_score, tree, labels)


def full_path_accuracy_score(y_true: Any, y_levels: Any, tree: Hierarchy) -> float:
    """Return FPA, the fraction of examples whose node is right at every level: mean [n_1 = A_1(y), ..., n_L = A_L(y)].

    Source: Park et al. (H-CAST), ICLR 2025.

    Args:
        y_true: [N] classes, indices in the tree's order or names.
        y_levels: [N, L] node index per level, coarsest first, as in `Hierarchy.level_targets`.
        tree: over the K classes.

    Raises:
        ValueError: no examples, wrong shapes, or what is no class or no node of its level.

    Example:
        >>> from hierbench import Hierarchy, metrics
        >>> tree = Hierarchy.from_paths({"oak": ("plant", "oak"), "fern": ("plant", "fern"), "cat": ("animal", "cat")})
        >>> metrics.full_path_accuracy_score(["oak", "cat"], [[1, 0], [1, 2]], tree)  # animal 0, plant 1
        0.5
    """
    return _of_levels("fpa", y_true, y_levels, tree)


def tree_inconsistency_loss(y_true: Any, y_levels: Any, tree: Hierarchy) -> float:
    """Return TICE, the fraction of examples whose nodes are not one path: mean [n_l is not the parent of n_(l+1)].

    Whether the path is right does not matter, so that y_true is only checked. Arguments, errors and source as in
    `full_path_accuracy_score`.

    Example:
        >>> from hierbench import Hierarchy, metrics
        >>> tree = Hierarchy.from_paths({"oak": ("plant", "oak"), "fern": ("plant", "fern"), "cat": ("animal", "cat")})
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
    family, at, parameter = find_metric(name, tree).name.partition("@")
    true, predicted = _classes_of(y_true, tree, "y_true"), _classes_of(y_pred, tree, "y_pred")
    _check_lengths(true, predicted, "y_pred")
    needs = predicted
    if family in ("top1", "mistake_severity", "hierdist"):
        needs = predicted[:, None]  # ranked classes, of which there is one
    elif family == "level_accuracy":
        needs = levels_of(predicted, tree)
    return _fraction(name, value_of(family + at, int(parameter or 0), (needs,), true, tree))


def _of_scores(name: str, y_true: Any, y_score: Any, tree: Hierarchy, labels: Labels) -> float:
    """Return a metric of the registry of scores; the columns of a data frame are as it names them, without labels."""
    find_metric(name, tree)  # a k or level that the tree does not have
    true = _classes_of(y_true, tree, "y_true")
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
    evidence = Evidence(scores, true.to(scores.device), tree, probabilities_of(scores))
    return _fraction(name, compute_metrics([name], evidence)[name])


def _of_levels(name: str, y_true: Any, y_levels: Any, tree: Hierarchy) -> float:
    """Return a metric of the registry of a prediction per level."""
    given = as_tensor(y_levels, "y_levels must be integers [N, L]")
    return _fraction(name, value_of(name, 0, (given,), _classes_of(y_true, tree, "y_true").to(given.device), tree))


def _fraction(name: str, value: float) -> float:
    return value / 100.0 if find_metric(name).unit == "%" else value


def _classes_of(values: Any, tree: Hierarchy, what: str) -> Tensor:
    """Return class indices [N] of class indices or names; a ValueError unless they are one per example, N > 0."""
    found = np.asarray(values.detach().cpu() if hasattr(values, "detach") else values)
    if found.ndim != 1:
        raise ValueError(f"{what} must have one class per example, [N], got the shape {found.shape}")
    if not len(found):
        raise ValueError(f"{what} is empty: no examples to evaluate")
    return torch.from_numpy(class_indices(found, tree, what))


def _columns(labels: Sequence[Any], tree: Hierarchy) -> Tensor:
    """Return for each class of the tree its column; a ValueError unless each has one."""
    found = _classes_of(labels, tree, "labels")
    if len(found) != tree.num_classes or len(found.unique()) != tree.num_classes:
        raise ValueError(f"labels must name each of the {tree.num_classes} classes of the tree once, got {len(found)}")
    return found.argsort()


def _check_lengths(true: Any, other: Any, what: str) -> None:
    if len(true) != len(other):
        raise ValueError(f"y_true has {len(true):,} examples, {what} {len(other):,}")
