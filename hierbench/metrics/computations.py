"""How each metric is computed: what each example adds, and the value of the sums. `compute_metrics` calls them.

Shapes: N examples, K classes, L levels, S numbers that each example adds.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from hierbench.hierarchy.tree import Hierarchy
from hierbench.metrics import calibration, hops, levels, paths, selective
from hierbench.metrics.evidence import Evidence
from hierbench.metrics.sums import contributions, values_of


class Computation(NamedTuple):
    """How a metric is computed. Of a family ("@") the parameter is its k or level, else 0.

    Attributes:
        needs: (evidence, parameter) -> what it needs of the evidence; None where the method does not have it.
        counts: (*needs, targets, hierarchy) -> [N, S], what each example adds.
        value: (sums, parameter) -> the metric, of the number of examples and the summed counts, [1 + S] float64.
        size: hierarchy -> S.
        dtype: of the counts.
        summed: False where the value is of the counts of all examples instead, [N, S].
    """

    needs: Callable[[Evidence, int], tuple[Any, ...]]
    counts: Callable[..., Tensor]
    value: Callable[[Tensor, int], Any]
    size: Callable[[Hierarchy], int] = lambda _: 1
    dtype: torch.dtype = torch.int64
    summed: bool = True


def compute(family: str, parameter: int, evidence: Evidence, targets: Tensor) -> float:
    """Return a metric of evidence and its known targets, NaN if it is undefined."""
    tree = evidence.hierarchy
    if parameter > (tree.num_levels if family.startswith("level_") else tree.num_classes):
        return float("nan")
    needs = COMPUTATIONS[family].needs(evidence, parameter)
    return float("nan") if needs[0] is None else value_of(family, parameter, needs, targets, tree)


def value_of(family: str, parameter: int, needs: tuple[Any, ...], targets: Tensor, hierarchy: Hierarchy) -> float:
    """Return a metric of what it needs and of known targets [N]."""
    computation = COMPUTATIONS[family]
    counts = computation.counts(*needs, targets, hierarchy)
    return float(computation.value(sums_of(counts).cpu().double() if computation.summed else counts, parameter))


def sums_of(counts: Tensor) -> Tensor:
    """Return the number of examples and the sums of their counts [N, S], [1 + S]."""
    return torch.cat([counts.new_tensor([len(counts)]), counts.sum(dim=0)])


def _paper(name: str) -> Computation:
    return Computation(
        lambda evidence, k: (evidence.ranked(max(k, 1)),),
        lambda ranked, targets, tree: contributions(ranked, targets, tree, [1, ranked.shape[1]]),
        lambda sums, k: values_of(sums.numpy(), [1, max(k, 1)])[name.format(k)],
        lambda _: 3,
    )


def _of_levels(needs: Callable[[Evidence, int], tuple[Any]], place: int) -> Computation:
    """Return the share of examples that are counted at a place of the sums, or as many after it as the level says."""
    return Computation(
        needs,
        levels.level_counts,
        lambda sums, level: 100.0 * sums[place + level] / sums[0],
        lambda tree: 2 + tree.num_levels,
    )


def _path_score(name: str) -> Computation:
    return Computation(
        lambda evidence, _: (evidence.top,),
        paths.path_counts,
        lambda sums, _: paths.hierarchical_score(sums, name),
        lambda _: 6,
        torch.float64,
    )


def _hops(k_of: Callable[[Evidence, int], int]) -> Computation:
    return Computation(
        lambda evidence, k: (evidence.scores, k_of(evidence, k)),
        lambda scores, k, targets, tree: hops.hops_scores(scores, targets, tree, k)[:, None],
        lambda sums, _: 100.0 * sums[1] / sums[0],
        dtype=torch.float64,
    )


def _calibration(which: int) -> Computation:
    return Computation(
        lambda evidence, _: (evidence.top, evidence.probabilities),
        lambda top, probabilities, targets, _: calibration.bin_counts(top, probabilities, targets),
        lambda sums, _: calibration.calibration_errors(sums)[which],
        lambda _: 3 * calibration.BINS,
        torch.float64,
    )


def _haurc(rule: selective.Rule) -> Computation:
    return Computation(
        lambda evidence, _: (evidence.top, evidence.climb),
        lambda top, climb, targets, tree: selective.climb_steps(top, climb, targets, tree).flatten(1),
        lambda steps, _: selective.area_under(selective.curve_of(steps.unflatten(1, (3, -1)), rule)),
        summed=False,
    )


COMPUTATIONS = {
    "top1": _paper("top1"),
    "mistake_severity": _paper("mistake_severity"),
    "hierdist@": _paper("hierdist@{}"),
    "min_distance@": Computation(
        lambda evidence, k: (evidence.ranked(k),), paths.min_distance_counts, lambda sums, _: sums[1] / sums[0]
    ),
    "level_accuracy@": _of_levels(lambda evidence, _: (levels.levels_of(evidence.top, evidence.hierarchy),), 2),
    "level_accuracy_lifted@": _of_levels(lambda evidence, _: (evidence.lifted,), 2),
    "fpa": _of_levels(lambda evidence, _: (evidence.level_predictions,), 1),
    "tice": _of_levels(lambda evidence, _: (evidence.level_predictions,), 2),
    **{name: _path_score(name) for name in paths.SCORES},
    "information_severity": Computation(
        lambda evidence, _: (evidence.top,),
        paths.bit_counts,
        lambda sums, _: sums[2] / sums[1],
        lambda _: 2,
        torch.float64,
    ),
    "hops@": _hops(lambda _, k: k),
    "hops": _hops(lambda evidence, _: evidence.hierarchy.num_classes),
    "ece": _calibration(0),
    "mce": _calibration(1),
    "haurc_climbing": _haurc("climbing"),
    "haurc_selective": _haurc("selective"),
}
