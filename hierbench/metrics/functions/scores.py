"""Metrics of scores: distances of the k best classes, agreement of the ranking with the tree, calibration, abstaining.

Shapes: N examples, K classes, L levels. A larger score ranks earlier; ties go to the lower class index. Where
probabilities are needed they are the scores if every row is a distribution, else their softmax. Formulas: target y,
ranked classes c_1, c_2, ...; D the hierarchical distance; p probabilities.
"""

from collections.abc import Sequence
from typing import Any, Literal

from hierbench.hierarchy.tree import Hierarchy
from hierbench.metrics.functions.inputs import of_scores

Labels = Sequence[Any] | None


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
    return of_scores(f"hierdist@{k}", y_true, y_score, tree, labels)


def min_distance_at_k_loss(y_true: Any, y_score: Any, tree: Hierarchy, *, k: int = 5, labels: Labels = None) -> float:
    """Return the mean over examples of min(D(y, c_1), ..., D(y, c_k)), in edges: `min_distance@k` of tables.

    Arguments and errors as in `hierdist_at_k_loss`. Source: ILSVRC 2010, hierarchical cost of the best of k guesses.

    Example:
        >>> from hierbench import Hierarchy, metrics
        >>> tree = Hierarchy.from_paths({"oak": ("plant", "oak"), "fern": ("plant", "fern"), "cat": ("animal", "cat")})
        >>> metrics.min_distance_at_k_loss(["oak", "cat"], [[0.3, 0.6, 0.1], [0.7, 0.2, 0.1]], tree, k=2)
        1.0
    """
    return of_scores(f"min_distance@{k}", y_true, y_score, tree, labels)


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
    return of_scores("hops" if k is None else f"hops@{k}", y_true, y_score, tree, labels) / 100.0


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
    return of_scores(f"level_accuracy_lifted@{level}", y_true, y_score, tree, labels) / 100.0


def expected_calibration_error(y_true: Any, y_score: Any, tree: Hierarchy, *, labels: Labels = None) -> float:
    """Return ECE: the sum over 15 bins of |bin| / N |accuracy - confidence|, between 0 and 1; lower is better.

    Arguments and errors as in `hierdist_at_k_loss`. Source: Guo et al., ICML 2017.

    Example:
        >>> from hierbench import Hierarchy, metrics
        >>> tree = Hierarchy.from_paths({"oak": ("plant", "oak"), "fern": ("plant", "fern"), "cat": ("animal", "cat")})
        >>> metrics.expected_calibration_error(["oak", "cat"], [[0.75, 0.25, 0.0], [0.75, 0.0, 0.25]], tree)
        0.25
    """
    return of_scores("ece", y_true, y_score, tree, labels) / 100.0


def maximum_calibration_error(y_true: Any, y_score: Any, tree: Hierarchy, *, labels: Labels = None) -> float:
    """Return MCE: the largest |accuracy - confidence| of 15 bins, between 0 and 1; lower is better.

    Arguments and errors as in `hierdist_at_k_loss`. Source: Guo et al., ICML 2017.

    Example:
        >>> from hierbench import Hierarchy, metrics
        >>> tree = Hierarchy.from_paths({"oak": ("plant", "oak"), "fern": ("plant", "fern"), "cat": ("animal", "cat")})
        >>> metrics.maximum_calibration_error(["oak", "cat"], [[0.75, 0.25, 0.0], [0.0, 0.5, 0.5]], tree)
        0.5
    """
    return of_scores("mce", y_true, y_score, tree, labels) / 100.0


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
    return of_scores(f"haurc_{rule}", y_true, y_score, tree, labels)
