"""A function per metric in the way of scikit-learn: y_true, then y_pred, y_score or y_levels, then the tree.

Shapes: N examples, K classes, L levels. Classes are indices in the tree's order or names. A larger score ranks earlier;
ties go to the lower class index. Where probabilities are needed they are the scores if every row is a distribution to
1%, else their softmax. Values are between 0 and 1 where tables print per cent; distances are in edges. Formulas: target
y, predicted class c, ranked classes c_1, c_2, ...; A(n) the nodes from below the root down to n; D the hierarchical
distance; LCA the lowest common ancestor; p probabilities.
"""

from collections.abc import Callable
from textwrap import fill
from typing import Any, Literal, TypeVar

from hierbench.hierarchy.label_tree import Hierarchy
from hierbench.metrics.function_inputs import (
    Average,
    Labels,
    checked_average,
    metric_of_classes,
    metric_of_levels,
    metric_of_scores,
)
from hierbench.metrics.metric_table import SPEC_BY_NAME, find_metric

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
    return metric_of_classes("top1", y_true, y_pred, tree)


@_described("mistake_severity")
def mistake_severity(y_true: Any, y_pred: Any, tree: Hierarchy) -> float:
    """Return the mean distance of mistakes from their targets; NaN without mistakes.

    Arguments and errors as in `top1_score`.

    Example:
        >>> metrics.mistake_severity(["oak", "fern", "cat", "cat"], ["oak", "oak", "fern", "cat"], tree)
        1.5
    """
    return metric_of_classes("mistake_severity", y_true, y_pred, tree)


@_described("hierdist@1")
def hierarchical_distance(y_true: Any, y_pred: Any, tree: Hierarchy) -> float:
    """Return the mean distance of all examples from their targets, 0 for correct predictions.

    Arguments and errors as in `top1_score`.

    Example:
        >>> metrics.hierarchical_distance(["oak", "fern", "cat", "cat"], ["oak", "oak", "fern", "cat"], tree)
        0.75
    """
    return metric_of_classes("hierdist@1", y_true, y_pred, tree)


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
    return metric_of_classes(f"level_accuracy@{level}", y_true, y_pred, tree)


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
    return metric_of_classes(f"hp_{checked_average(average)}", y_true, y_pred, tree)


@_described("hr_micro", "hr_macro")
def hierarchical_recall_score(y_true: Any, y_pred: Any, tree: Hierarchy, *, average: Average = "micro") -> float:
    """Return hR, the fraction of the target's ancestors (and itself) that are the predicted class's too.

    Arguments and errors as in `hierarchical_precision_score`.

    Example:
        >>> metrics.hierarchical_recall_score(["oak", "fern", "cat"], ["oak", "oak", "fern"], tree)
        0.5
    """
    return metric_of_classes(f"hr_{checked_average(average)}", y_true, y_pred, tree)


@_described("hf_micro", "hf_macro")
def hf1_score(y_true: Any, y_pred: Any, tree: Hierarchy, *, average: Average = "micro") -> float:
    """Return hF1, the harmonic mean of hierarchical precision and recall.

    Arguments and errors as in `hierarchical_precision_score`.

    Example:
        >>> metrics.hf1_score(["oak", "fern", "cat"], ["oak", "oak", "fern"], tree)
        0.5
    """
    return metric_of_classes(f"hf_{checked_average(average)}", y_true, y_pred, tree)


@_described("information_severity")
def information_severity(y_true: Any, y_pred: Any, tree: Hierarchy) -> float:
    """Return how many bits the common ancestor of a mistake and its target leaves open; NaN without mistakes.

    Arguments and errors as in `top1_score`.

    Example:
        >>> metrics.information_severity(["oak", "fern"], ["fern", "oak"], tree)
        1.0
    """
    return metric_of_classes("information_severity", y_true, y_pred, tree)


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
    return metric_of_scores(f"hierdist@{k}", y_true, y_score, tree, labels)


@_described("min_distance@k")
def min_distance_at_k_loss(y_true: Any, y_score: Any, tree: Hierarchy, *, k: int = 5, labels: Labels = None) -> float:
    """Return the mean distance of the nearest of the k best-ranked classes from the target.

    Arguments and errors as in `hierdist_at_k_loss`.

    Example:
        >>> metrics.min_distance_at_k_loss(["oak", "cat"], [[0.3, 0.6, 0.1], [0.7, 0.2, 0.1]], tree, k=2)
        1.0
    """
    return metric_of_scores(f"min_distance@{k}", y_true, y_score, tree, labels)


@_described("hops@k")
def hops_score(y_true: Any, y_score: Any, tree: Hierarchy, *, k: int | None = None, labels: Labels = None) -> float:
    """Return HOPS, the agreement of the ranking with the order of the classes' distances from the target; 1 is best.

    Arguments and errors as in `hierdist_at_k_loss`; without k, all classes. See `hierbench.metrics.hops`.

    Example:
        >>> metrics.hops_score(["oak", "cat"], [[0.6, 0.3, 0.1], [0.1, 0.2, 0.7]], tree)
        1.0
    """
    return metric_of_scores("hops" if k is None else f"hops@{k}", y_true, y_score, tree, labels)


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
    return metric_of_scores(f"level_accuracy_lifted@{level}", y_true, y_score, tree, labels)


@_described("ece")
def expected_calibration_error(y_true: Any, y_score: Any, tree: Hierarchy, *, labels: Labels = None) -> float:
    """Return ECE, the mean gap between accuracy and confidence.

    Arguments and errors as in `hierdist_at_k_loss`.

    Example:
        >>> metrics.expected_calibration_error(["oak", "cat"], [[0.75, 0.25, 0.0], [0.75, 0.0, 0.25]], tree)
        0.25
    """
    return metric_of_scores("ece", y_true, y_score, tree, labels)


@_described("mce")
def maximum_calibration_error(y_true: Any, y_score: Any, tree: Hierarchy, *, labels: Labels = None) -> float:
    """Return MCE, the largest gap between accuracy and confidence.

    Arguments and errors as in `hierdist_at_k_loss`.

    Example:
        >>> metrics.maximum_calibration_error(["oak", "cat"], [[0.75, 0.25, 0.0], [0.0, 0.5, 0.5]], tree)
        0.5
    """
    return metric_of_scores("mce", y_true, y_score, tree, labels)


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
    return metric_of_scores(f"haurc_{rule}", y_true, y_score, tree, labels)


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
    return metric_of_levels("fpa", y_true, y_levels, tree)


@_described("tice")
def tree_inconsistency_loss(y_true: Any, y_levels: Any, tree: Hierarchy) -> float:
    """Return TICE, the fraction of examples whose nodes are not one path.

    Whether the path is right does not matter, so that y_true is only checked. Arguments and errors as in
    `full_path_accuracy_score`.

    Example:
        >>> metrics.tree_inconsistency_loss(["oak", "cat"], [[1, 0], [1, 2]], tree)  # a cat is no plant
        0.5
    """
    return metric_of_levels("tice", y_true, y_levels, tree)
