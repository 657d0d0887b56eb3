"""How metrics are computed, from contributions of examples to the value of the totals: arguments of `Metric`.

Tables read the registry without PyTorch: computations are imported when they are first used.

Shapes: N examples, K classes, L levels, S numbers that each example adds.
"""

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hierbench.metrics.metric_inputs import Evidence


BINS = 15  # of confidence


def imported(name: str) -> Callable[..., Any]:
    """Return the function MODULE.NAME of `hierbench.metrics`, whose module is imported when it is called."""
    module, _, function = name.partition(".")
    return lambda *arguments: getattr(import_module(f"hierbench.metrics.{module}"), function)(*arguments)


def of_distances(name: str) -> dict[str, Any]:
    """Return the computation of a metric of `evaluate`."""
    return {
        "needs": lambda evidence, k: (evidence.ranked(max(k, 1)),),
        "contributions": imported("sums.distance_counts"),
        "value": lambda totals, k: imported("sums.metrics_from_sums")(totals.numpy(), [1, max(k, 1)])[name.format(k)],
        "size": lambda _: 3,
        "dtype": "int64",
        "ranked": True,
    }


def of_levels(needs: "Callable[[Evidence, int], tuple[Any]]", place: int, *, ranked: bool = False) -> dict[str, Any]:
    """Return the share of examples that are counted at a place of the sums, or as many after it as the level says."""
    return {
        "needs": needs,
        "contributions": imported("level_metrics.level_counts"),
        "value": lambda totals, level: 100.0 * totals[place + level] / totals[0],
        "size": lambda tree: 2 + tree.num_levels,
        "dtype": "int64",
        "ranked": ranked,
    }


def of_paths(name: str) -> dict[str, Any]:
    """Return the computation of a score of the two paths from the root, see `paths.SCORES`."""
    return {
        "needs": lambda evidence, _: (evidence.top,),
        "contributions": imported("paths.path_counts"),
        "value": lambda totals, _: imported("paths.hierarchical_score")(totals, name),
        "size": lambda _: 6,
        "ranked": True,
    }


def of_ranking(k_of: "Callable[[Evidence, int], int]", *, ranked: bool = False) -> dict[str, Any]:
    """Return the computation of HOPS over as many classes as `k_of` says."""
    return {
        "needs": lambda evidence, k: (evidence.scores, k_of(evidence, k)),
        "contributions": lambda scores, k, *others: imported("hops.hops_scores")(scores, *others, k)[:, None],
        "ranked": ranked,
    }


def of_bins(which: int) -> dict[str, Any]:
    """Return the computation of a calibration error: 0 the expected, 1 the largest."""
    return {
        "needs": lambda evidence, _: (evidence.top, evidence.probabilities),
        "contributions": lambda *inputs: imported("calibration.bin_counts")(*inputs[:-1]),  # without the tree
        "value": lambda totals, _: imported("calibration.calibration_errors")(totals)[which],
        "size": lambda _: 3 * BINS,
    }


def of_coverage(rule: str) -> dict[str, Any]:
    """Return the computation of the area under risk over coverage by a rule, see `selective`."""
    return {
        "needs": lambda evidence, _: (evidence.top, evidence.climb),
        "contributions": lambda *inputs: imported("selective.climb_steps")(*inputs).flatten(1),
        "value": lambda steps, _: imported("selective.area_of_steps")(steps.unflatten(1, (3, -1)), rule),
        "summed": False,
    }


MIN_DISTANCE: dict[str, Any] = {
    "needs": lambda evidence, k: (evidence.ranked(k),),
    "contributions": imported("paths.min_distance_counts"),
    "dtype": "int64",
    "ranked": True,
}
BITS: dict[str, Any] = {
    "needs": lambda evidence, _: (evidence.top,),
    "contributions": imported("paths.bit_counts"),
    "value": lambda totals, _: totals[2] / totals[1],
    "size": lambda _: 2,
    "ranked": True,
}
TOP_LEVELS = of_levels(
    lambda evidence, _: (imported("level_metrics.levels_from_paths")(evidence.top, evidence.hierarchy),), 2, ranked=True
)
LIFTED_LEVELS = of_levels(lambda evidence, _: (evidence.lifted,), 2)
FULL_PATH = of_levels(lambda evidence, _: (evidence.level_predictions,), 1)
INCONSISTENT = of_levels(lambda evidence, _: (evidence.level_predictions,), 2)
WHOLE_RANKING = of_ranking(lambda evidence, _: evidence.hierarchy.num_classes)
ORDER_AT_K = of_ranking(lambda _, k: k, ranked=True)
