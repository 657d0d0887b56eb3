"""The computation of each metric of the registry from its evidence; `compute_metrics` is the way to call them.

A family of the registry ("@") takes all of its parameters at once, so that the classes are ranked once; other metrics
take and give one.
"""

import math
from collections.abc import Callable, Sequence

from hierbench.metrics import calibration, hops, levels, paths, selective
from hierbench.metrics.evidence import Evidence
from hierbench.metrics.sums import evaluate

Computation = Callable[[Evidence, Sequence[int]], list[float]]


def _top1(evidence: Evidence, _: Sequence[int]) -> list[float]:
    return [_paper(evidence, (1,))["top1"]]


def _mistake_severity(evidence: Evidence, _: Sequence[int]) -> list[float]:
    return [_paper(evidence, (1,))["mistake_severity"]]


def _hierdist(evidence: Evidence, ks: Sequence[int]) -> list[float]:
    found = _paper(evidence, ks)
    return [found.get(f"hierdist@{k}", math.nan) for k in ks]


def _paper(evidence: Evidence, ks: Sequence[int]) -> dict[str, float]:
    return evaluate(evidence.scores, evidence.targets, evidence.hierarchy, ks)


def _min_distance(evidence: Evidence, ks: Sequence[int]) -> list[float]:
    usable = [k for k in ks if k <= evidence.hierarchy.num_classes]
    if not usable:
        return [math.nan] * len(ks)
    sums = paths.min_distance_counts(evidence.scores, evidence.targets, evidence.hierarchy, usable).tolist()
    found = {k: total / sums[0] for k, total in zip(usable, sums[1:], strict=True)}
    return [found.get(k, math.nan) for k in ks]


def _level_accuracy(evidence: Evidence, numbers: Sequence[int]) -> list[float]:
    predictions = levels.levels_of(evidence.top, evidence.hierarchy)
    return _at(levels.level_accuracy(predictions, evidence.targets, evidence.hierarchy), numbers)


def _level_accuracy_lifted(evidence: Evidence, numbers: Sequence[int]) -> list[float]:
    return _at(levels.level_accuracy(evidence.lifted, evidence.targets, evidence.hierarchy), numbers)


def _at(by_level: list[float], numbers: Sequence[int]) -> list[float]:
    return [by_level[number - 1] if number <= len(by_level) else math.nan for number in numbers]


def _path_score(name: str) -> Computation:
    def compute(evidence: Evidence, _: Sequence[int]) -> list[float]:
        counts = paths.path_counts(evidence.top, evidence.targets, evidence.hierarchy)
        return [paths.hierarchical_scores(counts)[name]]

    return compute


def _information_severity(evidence: Evidence, _: Sequence[int]) -> list[float]:
    counts = paths.lca_counts(evidence.top, evidence.targets, evidence.hierarchy)
    return [paths.information_severity(counts)]


def _full_path_accuracy(evidence: Evidence, _: Sequence[int]) -> list[float]:
    if evidence.level_predictions is None:
        return [math.nan]
    return [levels.full_path_accuracy(evidence.level_predictions, evidence.targets, evidence.hierarchy)]


def _tree_inconsistency(evidence: Evidence, _: Sequence[int]) -> list[float]:
    if evidence.level_predictions is None:
        return [math.nan]
    return [levels.tree_inconsistency(evidence.level_predictions, evidence.targets, evidence.hierarchy)]


def _hops_at(evidence: Evidence, ks: Sequence[int]) -> list[float]:
    most = evidence.hierarchy.num_classes
    return [_hops(evidence, k) if k <= most else math.nan for k in ks]


def _hops_of_all(evidence: Evidence, _: Sequence[int]) -> list[float]:
    return [_hops(evidence, None)]


def _hops(evidence: Evidence, k: int | None) -> float:
    return 100.0 * float(hops.hops_scores(evidence.scores, evidence.targets, evidence.hierarchy, k).mean())


def _calibration(which: int) -> Computation:
    def compute(evidence: Evidence, _: Sequence[int]) -> list[float]:
        sums = calibration.bin_sums(evidence.top, evidence.targets, evidence.probabilities)
        return [calibration.calibration_errors(sums)[which]]

    return compute


def _haurc(rule: selective.Rule) -> Computation:
    def compute(evidence: Evidence, _: Sequence[int]) -> list[float]:
        curve = selective.operating_curve(evidence.top, evidence.targets, evidence.climb, evidence.hierarchy, rule)
        return [selective.area_under(curve)]

    return compute


COMPUTATIONS: dict[str, Computation] = {
    "top1": _top1,
    "mistake_severity": _mistake_severity,
    "hierdist@": _hierdist,
    "min_distance@": _min_distance,
    "level_accuracy@": _level_accuracy,
    "level_accuracy_lifted@": _level_accuracy_lifted,
    **{name: _path_score(name) for name in paths.SCORES},
    "information_severity": _information_severity,
    "fpa": _full_path_accuracy,
    "tice": _tree_inconsistency,
    "hops@": _hops_at,
    "hops": _hops_of_all,
    "ece": _calibration(0),
    "mce": _calibration(1),
    "haurc_climbing": _haurc("climbing"),
    "haurc_selective": _haurc("selective"),
}
