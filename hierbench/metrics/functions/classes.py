"""Metrics of predicted classes: accuracy, distances, hierarchical precision, recall and F1.

Shapes: N examples, K classes, L levels. All take classes as indices in the tree's order or as names. Formulas: target
y, predicted class c; A(n) the nodes from below the root down to n; D the hierarchical distance; LCA the lowest common
ancestor.
"""

from typing import Any, Literal

import torch

from hierbench.hierarchy.tree import Hierarchy, IntArray
from hierbench.metrics import levels, paths
from hierbench.metrics.bootstrap import contributions, metrics_of
from hierbench.metrics.functions.inputs import pair_of
from hierbench.metrics.registry import find_metric

Average = Literal["micro", "macro"]


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
    return _paper(y_true, y_pred, tree)["top1"] / 100.0


def mistake_severity(y_true: Any, y_pred: Any, tree: Hierarchy) -> float:
    """Return the mean over mistakes of D(y, c), in edges; lower is better, NaN without mistakes.

    Arguments and errors as in `top1_score`. Source: Liang & Davis, ICCV 2023, section 4.

    Example:
        >>> from hierbench import Hierarchy, metrics
        >>> tree = Hierarchy.from_paths({"oak": ("plant", "oak"), "fern": ("plant", "fern"), "cat": ("animal", "cat")})
        >>> metrics.mistake_severity(["oak", "fern", "cat", "cat"], ["oak", "oak", "fern", "cat"], tree)
        1.5
    """
    return _paper(y_true, y_pred, tree)["mistake_severity"]


def hierarchical_distance(y_true: Any, y_pred: Any, tree: Hierarchy) -> float:
    """Return the mean over examples of D(y, c), in edges; lower is better. It is `hierdist@1` of tables.

    Arguments and errors as in `top1_score`. Source: Liang & Davis, ICCV 2023, section 4.

    Example:
        >>> from hierbench import Hierarchy, metrics
        >>> tree = Hierarchy.from_paths({"oak": ("plant", "oak"), "fern": ("plant", "fern"), "cat": ("animal", "cat")})
        >>> metrics.hierarchical_distance(["oak", "fern", "cat", "cat"], ["oak", "oak", "fern", "cat"], tree)
        0.75
    """
    return _paper(y_true, y_pred, tree)["hierdist@1"]


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
    find_metric(f"level_accuracy@{level}", tree)
    true, predicted = map(torch.from_numpy, pair_of(y_true, y_pred, tree))
    return levels.level_accuracy(levels.levels_of(predicted, tree), true, tree)[level - 1] / 100.0


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
    return _path_score("hp", y_true, y_pred, tree, average)


def hierarchical_recall_score(y_true: Any, y_pred: Any, tree: Hierarchy, *, average: Average = "micro") -> float:
    """Return hR, the fraction of the target's ancestors (and itself) that are the predicted class's too.

    Arguments, errors and source as in `hierarchical_precision_score`: "micro" is sum |A(c) & A(y)| / sum |A(y)|.

    Example:
        >>> from hierbench import Hierarchy, metrics
        >>> tree = Hierarchy.from_paths({"oak": ("plant", "oak"), "fern": ("plant", "fern"), "cat": ("animal", "cat")})
        >>> metrics.hierarchical_recall_score(["oak", "fern", "cat"], ["oak", "oak", "fern"], tree)
        0.5
    """
    return _path_score("hr", y_true, y_pred, tree, average)


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
    return _path_score("hf", y_true, y_pred, tree, average)


def information_severity(y_true: Any, y_pred: Any, tree: Hierarchy) -> float:
    """Return the mean over mistakes of log2(classes below LCA(y, c)), in bits; lower is better, NaN without mistakes.

    Arguments and errors as in `top1_score`. Source: Valmadre, NeurIPS 2022.

    Example:
        >>> from hierbench import Hierarchy, metrics
        >>> tree = Hierarchy.from_paths({"oak": ("plant", "oak"), "fern": ("plant", "fern"), "cat": ("animal", "cat")})
        >>> metrics.information_severity(["oak", "fern"], ["fern", "oak"], tree)
        1.0
    """
    true, predicted = map(torch.from_numpy, pair_of(y_true, y_pred, tree))
    return paths.information_severity(paths.lca_counts(predicted, true, tree))


def _paper(y_true: Any, y_pred: Any, tree: Hierarchy) -> dict[str, float]:
    true, predicted = pair_of(y_true, y_pred, tree)
    ranked: IntArray = predicted[:, None]
    return metrics_of(contributions(ranked, true, tree, [1]), [1])


def _path_score(name: str, y_true: Any, y_pred: Any, tree: Hierarchy, average: Average) -> float:
    if average not in ("micro", "macro"):
        raise ValueError(f'average must be "micro" or "macro", got {average!r}')
    true, predicted = map(torch.from_numpy, pair_of(y_true, y_pred, tree))
    counts = paths.path_counts(predicted, true, tree)
    return paths.hierarchical_scores(counts)[f"{name}_{average}"] / 100.0
