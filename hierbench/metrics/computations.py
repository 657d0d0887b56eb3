"""How metrics are computed, from contributions of examples to the value of the totals, for `metric_table`.

Tables read the registry without PyTorch: computations are imported when they are first used.

Shapes: N examples, K classes, L levels, S numbers that each example adds.
"""

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from hierbench.hierarchy.label_tree import Hierarchy

if TYPE_CHECKING:
    from torch import Tensor

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


class Computation(NamedTuple):
    """How a metric is computed. Of a family ("@") the parameter is its k or level, else 0.

    Attributes:
        needs: (evidence, parameter) -> the arrays that it needs; None if the method does not have them.
        counts: (*needs, targets, hierarchy) -> [N, S], the contribution of each example.
        value: (totals, parameter) -> the metric, of the number of examples and the summed counts, [1 + S] float64.
        size: hierarchy -> S.
        dtype: of the counts, "int64" or "float64".
        summed: False where the value is of the counts of all examples instead, [N, S].
        ranked: whether it follows from the best-ranked classes alone, as compact predictions keep them.
    """

    needs: "Callable[[Evidence, int], tuple[Any, ...]]"
    counts: "Callable[..., Tensor]"
    value: "Callable[[Tensor, int], Any]"
    size: Callable[[Hierarchy], int] = lambda _: 1
    dtype: Literal["int64", "float64"] = "int64"
    summed: bool = True
    ranked: bool = False


def sum_counts(counts: "Tensor") -> "Tensor":
    """Return the number of examples and the sums of their counts [N, S], [1 + S]."""
    import torch

    return torch.cat([counts.new_tensor([len(counts)]), counts.sum(dim=0)])


def join_counts(counts: Sequence["Tensor"]) -> "Tensor":
    """Return the counts [n, S] of parts as those of all examples [N, S]."""
    import torch

    return torch.cat(list(counts))


def of_distances(name: str) -> Computation:
    """Return the computation of a metric of `evaluate`."""
    return Computation(
        lambda evidence, k: (evidence.ranked(max(k, 1)),),
        lambda ranked, targets, tree: sums.contributions(ranked, targets, tree, [1, ranked.shape[1]]),
        lambda totals, k: sums.metrics_from_sums(totals.numpy(), [1, max(k, 1)])[name.format(k)],
        lambda _: 3,
        ranked=True,
    )


def of_levels(needs: "Callable[[Evidence, int], tuple[Any]]", place: int, *, ranked: bool = False) -> Computation:
    """Return the share of examples that are counted at a place of the sums, or as many after it as the level says."""
    return Computation(
        needs,
        lambda *arguments: level_metrics.level_counts(*arguments),
        lambda totals, level: 100.0 * totals[place + level] / totals[0],
        lambda tree: 2 + tree.num_levels,
        ranked=ranked,
    )


def of_paths(name: str) -> Computation:
    """Return the computation of a score of the two paths from the root, see `paths.SCORES`."""
    return Computation(
        lambda evidence, _: (evidence.top,),
        lambda *arguments: paths.path_counts(*arguments),
        lambda totals, _: paths.hierarchical_score(totals, name),
        lambda _: 6,
        "float64",
        ranked=True,
    )


def of_ranking(k_of: "Callable[[Evidence, int], int]") -> Computation:
    """Return the computation of HOPS over as many classes as `k_of` says."""
    return Computation(
        lambda evidence, k: (evidence.scores, k_of(evidence, k)),
        lambda scores, k, targets, tree: hops.hops_scores(scores, targets, tree, k)[:, None],
        lambda totals, _: 100.0 * totals[1] / totals[0],
        dtype="float64",
    )


def of_bins(which: int) -> Computation:
    """Return the computation of a calibration error: 0 the expected, 1 the largest."""
    return Computation(
        lambda evidence, _: (evidence.top, evidence.probabilities),
        lambda top, probabilities, targets, _: calibration.bin_counts(top, probabilities, targets),
        lambda totals, _: calibration.calibration_errors(totals)[which],
        lambda _: 3 * calibration.BINS,
        "float64",
    )


def of_coverage(rule: str) -> Computation:
    """Return the computation of the area under risk over coverage by a rule, see `selective`."""
    return Computation(
        lambda evidence, _: (evidence.top, evidence.climb),
        lambda top, climb, targets, tree: selective.climb_steps(top, climb, targets, tree).flatten(1),
        lambda steps, _: selective.area_under(selective.curve_from_steps(steps.unflatten(1, (3, -1)), rule)),
        summed=False,
    )


MIN_DISTANCE = Computation(
    lambda evidence, k: (evidence.ranked(k),),
    lambda *arguments: paths.min_distance_counts(*arguments),
    lambda totals, _: totals[1] / totals[0],
    ranked=True,
)
BITS = Computation(
    lambda evidence, _: (evidence.top,),
    lambda *arguments: paths.bit_counts(*arguments),
    lambda totals, _: totals[2] / totals[1],
    lambda _: 2,
    "float64",
    ranked=True,
)
TOP_LEVELS = of_levels(
    lambda evidence, _: (level_metrics.levels_from_paths(evidence.top, evidence.hierarchy),), 2, ranked=True
)
LIFTED_LEVELS = of_levels(lambda evidence, _: (evidence.lifted,), 2)
FULL_PATH = of_levels(lambda evidence, _: (evidence.level_predictions,), 1)
INCONSISTENT = of_levels(lambda evidence, _: (evidence.level_predictions,), 2)
WHOLE_RANKING = of_ranking(lambda evidence, _: evidence.hierarchy.num_classes)
ORDER_AT_K = of_ranking(lambda _, k: k)._replace(ranked=True)
