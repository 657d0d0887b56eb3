"""How metrics are computed, from contributions of examples to the value of the totals: arguments of `Metric`.

Tables read the registry without PyTorch: computations are imported when they are first used.

Shapes: N examples, K classes, L levels, S numbers that each example adds.
"""

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hierbench.metrics.metric_inputs import Evidence


class _Module:
    """A module of the metrics, imported when something of it is first used."""

    def __init__(self, name: str) -> None:
        self.name = f"hierbench.metrics.{name}"

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self.name), name)


calibration, hops, level_metrics, paths, selective, sums = map(
    _Module, ("calibration", "hops", "level_metrics", "paths", "selective", "sums")
)


Computation = dict[str, Any]  # arguments of a `Metric`


def of_distances(name: str) -> Computation:
    """Return the computation of a metric of `evaluate`."""
    return {
        "needs": lambda evidence, k: (evidence.ranked(max(k, 1)),),
        "contributions": lambda ranked, targets, tree: sums.contributions(ranked, targets, tree, [1, ranked.shape[1]]),
        "value": lambda totals, k: sums.metrics_from_sums(totals.numpy(), [1, max(k, 1)])[name.format(k)],
        "size": lambda _: 3,
        "dtype": "int64",
        "ranked": True,
    }


def of_levels(needs: "Callable[[Evidence, int], tuple[Any]]", place: int, *, ranked: bool = False) -> Computation:
    """Return the share of examples that are counted at a place of the sums, or as many after it as the level says."""
    return {
        "needs": needs,
        "contributions": lambda *arguments: level_metrics.level_counts(*arguments),
        "value": lambda totals, level: 100.0 * totals[place + level] / totals[0],
        "size": lambda tree: 2 + tree.num_levels,
        "dtype": "int64",
        "ranked": ranked,
    }


def of_paths(name: str) -> Computation:
    """Return the computation of a score of the two paths from the root, see `paths.SCORES`."""
    return {
        "needs": lambda evidence, _: (evidence.top,),
        "contributions": lambda *arguments: paths.path_counts(*arguments),
        "value": lambda totals, _: paths.hierarchical_score(totals, name),
        "size": lambda _: 6,
        "ranked": True,
    }


def of_ranking(k_of: "Callable[[Evidence, int], int]", *, ranked: bool = False) -> Computation:
    """Return the computation of HOPS over as many classes as `k_of` says."""
    return {
        "needs": lambda evidence, k: (evidence.scores, k_of(evidence, k)),
        "contributions": lambda scores, k, targets, tree: hops.hops_scores(scores, targets, tree, k)[:, None],
        "ranked": ranked,
    }


def of_bins(which: int) -> Computation:
    """Return the computation of a calibration error: 0 the expected, 1 the largest."""
    return {
        "needs": lambda evidence, _: (evidence.top, evidence.probabilities),
        "contributions": lambda top, probabilities, targets, _: calibration.bin_counts(top, probabilities, targets),
        "value": lambda totals, _: calibration.calibration_errors(totals)[which],
        "size": lambda _: 3 * calibration.BINS,
    }


def of_coverage(rule: str) -> Computation:
    """Return the computation of the area under risk over coverage by a rule, see `selective`."""
    return {
        "needs": lambda evidence, _: (evidence.top, evidence.climb),
        "contributions": lambda top, climb, targets, tree: selective.climb_steps(top, climb, targets, tree).flatten(1),
        "value": lambda steps, _: selective.area_under(selective.curve_from_steps(steps.unflatten(1, (3, -1)), rule)),
        "summed": False,
    }


MIN_DISTANCE: Computation = {
    "needs": lambda evidence, k: (evidence.ranked(k),),
    "contributions": lambda *arguments: paths.min_distance_counts(*arguments),
    "dtype": "int64",
    "ranked": True,
}
BITS: Computation = {
    "needs": lambda evidence, _: (evidence.top,),
    "contributions": lambda *arguments: paths.bit_counts(*arguments),
    "value": lambda totals, _: totals[2] / totals[1],
    "size": lambda _: 2,
    "ranked": True,
}
TOP_LEVELS = of_levels(
    lambda evidence, _: (level_metrics.levels_from_paths(evidence.top, evidence.hierarchy),), 2, ranked=True
)
LIFTED_LEVELS = of_levels(lambda evidence, _: (evidence.lifted,), 2)
FULL_PATH = of_levels(lambda evidence, _: (evidence.level_predictions,), 1)
INCONSISTENT = of_levels(lambda evidence, _: (evidence.level_predictions,), 2)
WHOLE_RANKING = of_ranking(lambda evidence, _: evidence.hierarchy.num_classes)
ORDER_AT_K = of_ranking(lambda _, k: k, ranked=True)
