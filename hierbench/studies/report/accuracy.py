"""Parts 1 and 2 of a report: right or wrong, how far off, beside references of the same file, and by level.

Shapes: N images, K classes, L levels, k ranked classes.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from hierbench.hierarchy.label_tree import Hierarchy, IntArray
from hierbench.metrics.computations import BINS
from hierbench.metrics.sums import contributions
from hierbench.studies.report.resampling import Floats, Quantity, mean_of, ratio_of
from hierbench.studies.report.scored_images import REPORT_KS, ScoredImages

PER_CENT = 100.0
LISTED_AT_A_TIME = 2**22  # distances of classes whose neighbours are looked for


def summary(ranked: Sequence[IntArray], targets: IntArray, tree: Hierarchy) -> dict[str, Quantity]:
    """Return accuracy, severity and HierDist@k of ranked classes, per seed [N, k], as far as k goes."""
    ks = [k for k in REPORT_KS if k <= ranked[0].shape[1]]
    added = [contributions(classes, targets, tree, ks).double().numpy() for classes in ranked]
    right = [each[:, 0] for each in added]
    distance = [each[:, 1] for each in added]
    quantities = {
        "top1": mean_of("top1", right, scale=PER_CENT),
        "mistake_severity": ratio_of("mistake_severity", distance, [1.0 - each for each in right], "lower"),
    }
    for place, k in enumerate(ks, start=1):
        name = f"hierdist@{k}"
        quantities[name] = mean_of(name, [each[:, place] / k for each in added], "lower")
    return quantities


def commonest(targets: IntArray, num_classes: int) -> IntArray:
    """Return [N, k] the commonest classes of the targets, of equally common ones the lower index first."""
    order = np.argsort(-np.bincount(targets, minlength=num_classes), kind="stable")
    return np.broadcast_to(order[: max(REPORT_KS)], (len(targets), min(max(REPORT_KS), num_classes)))


def neighbours(top: IntArray, tree: Hierarchy) -> IntArray:
    """Return [N, k] the best class and those nearest to it in the tree, the lower index first: `nearest`, a reference.

    A class is at most as near as all others below one of its ancestors, so that distances decide, then indices.
    """
    classes, place = np.unique(top, return_inverse=True)
    num = min(max(REPORT_KS), tree.num_classes)
    listed = np.empty((len(classes), num), dtype=np.int64)
    others = np.arange(tree.num_classes)
    rows = max(1, LISTED_AT_A_TIME // tree.num_classes)
    for start in range(0, len(classes), rows):
        some = classes[start : start + rows]
        keys = torch.from_numpy(tree.distances_between(some[:, None], others) * tree.num_classes + others)
        listed[start : start + rows] = keys.topk(num, largest=False).indices.numpy()
    return listed[place]


def references(images: Sequence[ScoredImages], tree: Hierarchy) -> dict[str, dict[str, Quantity]]:
    """Return the summary of two references that the same file gives: `commonest` and `nearest`."""
    targets = images[0].targets
    return {
        "commonest": summary([commonest(targets, tree.num_classes)] * len(images), targets, tree),
        "nearest": summary([neighbours(each.top, tree) for each in images], targets, tree),
    }


def level_quantities(images: Sequence[ScoredImages], tree: Hierarchy, level: int) -> dict[str, Quantity]:
    """Return accuracy, macro accuracy and the share of mistakes within a node, of a level from 1, the coarsest."""
    nodes = tree.level_targets[:, level - 1]
    true = nodes[images[0].targets]
    right = [nodes[each.top] == true for each in images]
    wrong = [each.top != each.targets for each in images]
    within = [a & b for a, b in zip(right, wrong, strict=True)]
    name = f"level_{level}"
    return {
        f"{name}_accuracy": mean_of(f"{name}_accuracy", right, scale=PER_CENT),
        f"{name}_macro_accuracy": _macro(f"{name}_macro_accuracy", right, true, tree.level_sizes[level - 1]),
        f"{name}_mistakes_within": ratio_of(f"{name}_mistakes_within", within, wrong, "higher", PER_CENT),
    }


def _macro(name: str, right: Sequence[NDArray[np.bool_]], true: IntArray, num: int) -> Quantity:
    """Return the mean over the nodes that occur of the accuracy of each, in per cent."""
    rows = np.arange(len(true))
    counted = np.ones(len(true))

    def value(sums: Floats) -> Floats:
        number = sums[..., num:]
        accuracy = np.divide(sums[..., :num], number, out=np.zeros_like(number), where=number > 0)
        mean: Floats = PER_CENT * accuracy.sum(axis=-1) / np.maximum((number > 0).sum(axis=-1), 1)
        return mean

    columns = [
        csr_matrix(
            (np.concatenate([each.astype(float), counted]), (np.tile(rows, 2), np.concatenate([true, num + true]))),
            shape=(len(true), 2 * num),
        )
        for each in right
    ]
    return Quantity(name, columns, value)


def calibration_error(name: str, confidence: Sequence[Any], right: Sequence[Any]) -> Quantity:
    """Return the ECE in per cent over 15 bins, of confidences and whether they were right, per seed [N].

    Bins are those of `hierbench.metrics.calibration.bin_counts`.
    """
    edges = np.arange(1, BINS) / BINS

    def columns(sure: Floats, correct: Any) -> Floats:
        added = np.zeros((len(sure), BINS + 1))
        added[:, BINS] = 1.0
        added[np.arange(len(sure)), np.searchsorted(edges, sure, side="left")] = correct - sure
        return added

    def value(sums: Floats) -> Floats:
        error: Floats = PER_CENT * np.abs(sums[..., :BINS]).sum(axis=-1) / sums[..., BINS]
        return error

    pairs = zip(confidence, right, strict=True)
    return Quantity(name, [columns(np.asarray(c, float), np.asarray(r, float)) for c, r in pairs], value, "lower")


def level_names(tree: Hierarchy) -> list[str]:
    """Return the names of the levels that the tree's source has, else "level 1", ..., and "class"."""
    read = () if tree.reading is None else tree.reading.levels
    if len(read) == tree.num_levels and all(read):
        return list(read)
    return [*(f"level {level}" for level in range(1, tree.num_levels)), "class"]


def by_level(images: Sequence[ScoredImages], tree: Hierarchy, further: Mapping[str, Quantity]) -> dict[str, Quantity]:
    """Return the quantities of all levels, coarsest first, with those of `further` that scores give."""
    quantities = dict[str, Quantity]()
    for level in range(1, tree.num_levels + 1):
        quantities |= level_quantities(images, tree, level)
    return {**quantities, **further}
