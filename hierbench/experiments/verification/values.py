"""Results that no predictions could have: numbers against the tree, the number of examples, and each other."""

import math
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from hierbench.experiments.verification.records import Record
from hierbench.experiments.verification.targets import expected_sizes
from hierbench.hierarchy.tree import Hierarchy
from hierbench.metrics.sums import DEFAULT_KS, usable_ks

CLOSE = 1e-9  # relative, of identities between floats
WHOLE = 1e-6  # by how much a count may miss a whole number
LARGE = 2048  # classes above which hierdist is only compared with the largest distance


def check_values(record: Record, tree: Hierarchy) -> None:
    """Reject a run whose metrics.json no predictions could have given."""
    finding, metrics = record.finding, record.metrics
    spec, top = record.spec, None if record.scored is None else record.scored.top
    splits = record.environment.get("data", {}).get("splits", {}) if spec else {}
    dropped = spec is not None and spec.evaluation.drop_last
    for section in ("test", "val"):
        if section not in metrics:
            continue
        num = metrics.get("examples") if spec is None else None if dropped else splits.get(section)
        for problem in problems_of(metrics[section], tree, num if isinstance(num, int) else None, top):
            finding.reject(f"impossible {section} result: {problem}")
    if record.is_tested:
        for problem in problems_of_mistakes(metrics.get("mistakes_by_distance"), metrics["test"], tree):
            finding.reject(f"impossible test result: {problem}")
    if spec is not None:
        _check_environment(record, splits)


def problems_of(
    metrics: Mapping[str, Any], tree: Hierarchy, num: int | None = None, top: int | None = None
) -> Iterator[str]:
    """Yield what is impossible about the paper's metrics.

    Args:
        metrics: as in metrics.json, None for a severity without mistakes.
        tree: that they are of.
        num: examples, if known.
        top: ranked classes per example, None for all.
    """
    ks = [k for k in usable_ks(DEFAULT_KS, tree.num_classes) if top is None or k <= top]
    names = {"top1", "mistake_severity", *(f"hierdist@{k}" for k in ks)}
    if set(metrics) != names:
        yield f"it has {', '.join(sorted(metrics))} instead of {', '.join(sorted(names))}"
        return
    top1, severity = metrics["top1"], metrics["mistake_severity"]
    if not 0.0 <= top1 <= 100.0:
        yield f"top1 is {top1}"
        return
    bounds = distance_bounds(tree)
    if (severity is None) != (top1 == 100.0):
        yield f"mistake_severity is {severity} at top1 {top1}"
    elif severity is not None and not bounds.least <= severity <= bounds.most:
        yield f"mistake_severity {severity} is not between {bounds.least} and {bounds.most}, the distances of the tree"
    expected = (1.0 - top1 / 100.0) * (severity or 0.0)
    if not math.isclose(metrics["hierdist@1"], expected, rel_tol=CLOSE, abs_tol=CLOSE):
        yield f"hierdist@1 {metrics['hierdist@1']} is not (1 - top1) x mistake_severity, which is {expected}"
    for k in ks:
        value, (low, high) = metrics[f"hierdist@{k}"], bounds.of_top[k]
        if not low - CLOSE <= value <= high + CLOSE:
            yield f"hierdist@{k} {value} is not between {low:g} and {high:g}, which the tree allows"
        elif num is not None and not _is_whole(value * k * num):
            yield f"hierdist@{k} {value} is no mean over {num} examples"
    if num is not None and not _is_whole(top1 * num / 100.0):
        yield f"top1 {top1} is no share of {num} examples"


def problems_of_mistakes(counts: Any, metrics: Mapping[str, Any], tree: Hierarchy) -> Iterator[str]:
    """Yield what is impossible about the numbers of mistakes at each distance, beside the metrics."""
    if not isinstance(counts, list) or not all(type(count) is int and count >= 0 for count in counts):
        yield "mistakes_by_distance is not a list of counts"
        return
    there = distance_bounds(tree).distances
    if len(counts) != tree.height + 1 or any(count for away, count in enumerate(counts) if away not in there):
        yield "mistakes_by_distance has mistakes at distances that the tree does not have"
        return
    mistakes, severity, top1 = sum(counts), metrics["mistake_severity"], metrics["top1"]
    if (mistakes == 0) != (severity is None):
        yield f"mistakes_by_distance has {mistakes} mistakes, and mistake_severity is {severity}"
    elif mistakes:
        mean = sum(away * count for away, count in enumerate(counts)) / mistakes
        if not math.isclose(mean, severity, rel_tol=CLOSE):
            yield f"mistake_severity is {severity}, and {mean} by mistakes_by_distance"
        elif top1 < 100.0 and not _is_whole(mistakes / (1.0 - top1 / 100.0)):
            yield f"{mistakes} mistakes are not what top1 {top1} leaves of any number of examples"


class _Bounds:
    """What the distances of a tree allow."""

    def __init__(self, tree: Hierarchy) -> None:
        distances = tree.distances
        counts = np.zeros(tree.height + 1, dtype=np.int64)
        for row in distances:  # all at once would be copied to 8 bytes each
            counts += np.bincount(row, minlength=len(counts))
        counts[0] -= tree.num_classes  # the diagonal
        self.distances = frozenset(counts.nonzero()[0].tolist()) or frozenset({0})
        self.least, self.most = min(self.distances), max(self.distances)
        self.of_top: dict[int, tuple[float, float]] = {}
        in_order = np.sort(distances, axis=1) if tree.num_classes <= LARGE else None
        for k in usable_ks(DEFAULT_KS, tree.num_classes):
            if in_order is None:
                self.of_top[k] = (0.0, float(self.most))
            else:
                low, high = in_order[:, :k].mean(axis=1).min(), in_order[:, -k:].mean(axis=1).max()
                self.of_top[k] = (float(low), float(high))


@lru_cache(maxsize=8)
def distance_bounds(tree: Hierarchy) -> _Bounds:
    """Return the distances between classes of a tree, and what they allow hierdist@k to be."""
    return _Bounds(tree)


def _is_whole(value: float) -> bool:
    return abs(value - round(value)) <= max(WHOLE, CLOSE * abs(value))


def _check_environment(record: Record, splits: Mapping[str, Any]) -> None:
    """Reject a run whose environment says other data than its spec, or hides that it is not the whole dataset."""
    finding, data, spec = record.finding, record.environment.get("data", {}), record.spec
    assert spec is not None
    if data.get("digest") != spec.dataset.digest:
        finding.reject("environment.json names other data than spec.json")
    expected = expected_sizes(spec.dataset.name)
    if expected is None:
        return
    whole = {"train": expected.train, "val": expected.val, "test": expected.test}
    odd = [name for name, size in whole.items() if splits.get(name) != size]
    if odd and "not the whole dataset" not in str(data.get("remark")):
        sizes = ", ".join(f"{name} {splits.get(name)} instead of {whole[name]}" for name in odd)
        finding.reject(f"environment.json does not say that this is not the whole dataset: {sizes}")
