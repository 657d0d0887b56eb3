"""Numbers of one name that publications define in different ways, each of the same predictions.

Shapes: N examples, K classes, k ranked classes, L levels.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from hierbench.answers.decision_rule import answer
from hierbench.answers.node_metrics import answer_curve, node_metrics
from hierbench.hierarchy.label_tree import Hierarchy, IntArray
from hierbench.hierarchy.levels import classes_at_distances
from hierbench.hierarchy.nodes import Nodes
from hierbench.utils.errors import unknown_name


@dataclass(frozen=True, eq=False)
class RankedExamples:
    """Predictions for N examples: ranked classes [N, k], targets [N], and probabilities [N, K] where they are known."""

    ranked: IntArray
    targets: IntArray
    hierarchy: Hierarchy
    probabilities: Tensor | None

    @cached_property
    def distances(self) -> IntArray:
        """[N, k] LCA heights (in edges) of the targets and the ranked classes."""
        return self.hierarchy.distances_between(self.targets[:, None], self.ranked)

    def of_nodes(self, metric: str, *, root: bool = False) -> float:
        """Return a metric of `node_metrics` of the best classes."""
        first_class = Nodes(self.hierarchy).num_inner
        best = first_class + self.ranked[:, 0]
        return node_metrics(best, first_class + self.targets, self.hierarchy, root=root)[metric]

    @cached_property
    def shared_names(self) -> IntArray:
        """[N, 3] names on the path of the best class, on that of the target, and on both."""
        tree = self.hierarchy
        names = [
            {level[place] for level, place in zip(tree.level_names, places, strict=True)}
            for places in tree.level_targets.tolist()
        ]
        pairs = zip(self.ranked[:, 0].tolist(), self.targets.tolist(), strict=True)
        sizes = [(len(names[best]), len(names[true]), len(names[best] & names[true])) for best, true in pairs]
        return np.array(sizes, dtype=np.int64)


class Definition(NamedTuple):
    """A number as one publication or program defines it."""

    title: str
    formula: str
    value: Callable[[RankedExamples], float]
    ranks: int = 1  # classes that it needs
    needs_probabilities: bool = False


def _hiclass(place: int) -> Callable[[RankedExamples], float]:
    """Return hP, hR or hF, micro, of sets of names."""

    def value(examples: RankedExamples) -> float:
        predicted, true, shared = examples.shared_names.sum(axis=0).tolist()
        return float((shared / predicted, shared / true, 2 * shared / (predicted + true))[place])

    return value


def _hiclass_macro(examples: RankedExamples) -> float:
    predicted, true, shared = examples.shared_names.T
    return float((2 * shared / (predicted + true)).mean())


def _of_information(examples: RankedExamples) -> tuple[Tensor, Tensor, Tensor]:
    """Return I of the LCA, of the best class, and of the target, [N] each."""
    nodes = Nodes(examples.hierarchy)
    information = (examples.hierarchy.num_classes / nodes.num_leaves.double()).log2()
    best, true = (nodes.num_inner + torch.from_numpy(part) for part in (examples.ranked[:, 0], examples.targets))
    shared = nodes.common_ancestors(best, true)
    return information[shared], information[best], information[true]


def _information_recall(examples: RankedExamples) -> float:
    shared, _, true = _of_information(examples)
    return float((shared / true).mean())


def _information_f1(examples: RankedExamples) -> float:
    shared, best, true = _of_information(examples)
    return float((2 * shared / (best + true)).mean())


def _information_area(examples: RankedExamples) -> float:
    assert examples.probabilities is not None
    targets = Nodes(examples.hierarchy).num_inner + torch.from_numpy(examples.targets)
    return answer_curve(examples.probabilities, targets, examples.hierarchy).area()


def _mean(k: int) -> Callable[[RankedExamples], float]:
    return lambda examples: float(examples.distances[:, :k].mean())


def _over_mistakes(k: int) -> Callable[[RankedExamples], float]:
    def value(examples: RankedExamples) -> float:
        wrong = examples.distances[examples.ranked[:, 0] != examples.targets, :k]
        return float(wrong.mean()) if len(wrong) else float("nan")

    return value


def _best_of(k: int) -> Callable[[RankedExamples], float]:
    return lambda examples: float(examples.distances[:, :k].min(axis=1).mean())


def _precision(k: int) -> Callable[[RankedExamples], float]:
    """Return the sum of 1 - D / max D over the k best classes, over the largest sum that k classes can have."""

    def value(examples: RankedExamples) -> float:
        height = examples.hierarchy.height
        nearest = classes_at_distances(examples.hierarchy, torch.device("cpu")).cumsum(dim=1).clamp_max(k)
        taken = nearest.diff(dim=1, prepend=torch.zeros_like(nearest[:, :1]))  # of the k nearest, at each distance
        best = (taken * (1.0 - torch.arange(height + 1, dtype=torch.float64) / height)).sum(dim=1)
        reached = 1.0 - examples.distances[:, :k] / height
        return float(reached.sum()) / float(best[examples.targets].sum())

    return value


def _top_down_recall(examples: RankedExamples) -> float:
    assert examples.probabilities is not None
    nodes = answer("top_down", examples.probabilities, examples.hierarchy)
    return node_metrics(nodes, Nodes(examples.hierarchy).num_inner + examples.targets, examples.hierarchy)["hr"]


DEFINITIONS: dict[str, tuple[Definition, ...]] = {
    "hiclass": (
        Definition("hP", "sum of |S(c) & S(y)| / sum of |S(c)|, sets of names without the root", _hiclass(0)),
        Definition("hR", "sum of |S(c) & S(y)| / sum of |S(y)|", _hiclass(1)),
        Definition("hF", "2 hP hR / (hP + hR), of these sums", _hiclass(2)),
        Definition("hF, macro", "mean of 2 |S(c) & S(y)| / (|S(c)| + |S(y)|)", _hiclass_macro),
    ),
    "hierulz": (
        Definition("hF", "mean hF1 of paths of nodes with the root", lambda each: each.of_nodes("hf", root=True)),
        Definition("Mistake severity", "mean edges between c and y, over all images", lambda e: e.of_nodes("edges")),
    ),
    "hiercls": (
        Definition("Exact", "mean [c = y]", lambda each: each.of_nodes("exact")),
        Definition("Depth F1", "mean of 2 d(LCA) / (d(c) + d(y))", lambda each: each.of_nodes("hf")),
        Definition("Info recall", "mean of I(LCA) / I(y)", _information_recall),
        Definition("Info F1", "mean of 2 I(LCA) / (I(c) + I(y))", _information_f1),
        Definition("AC (info)", "area under correct over info recall", _information_area, needs_probabilities=True),
    ),
    "mbm": (
        Definition("HierDist@1", "mean D(y, c) over all images", _mean(1)),
        Definition("HierDist@1, mistakes", "mean D(y, c) over mistakes", _over_mistakes(1)),
        Definition("HierDist@5", "mean D over the 5 best, all images", _mean(5), 5),
        Definition("HierDist@5, mistakes", "mean D over the 5 best, where c_1 is wrong", _over_mistakes(5), 5),
        Definition("HierDist@5, best", "mean of the least D among the 5 best", _best_of(5), 5),
        Definition("h-precision@5", "sum of 1 - D / max D over the 5 best / its largest", _precision(5), 5),
    ),
    "crm": (
        Definition("Mistake severity", "mean D(y, c) over mistakes", _over_mistakes(1)),
        Definition("HierDist@5", "mean D over the 5 best, all images", _mean(5), 5),
    ),
    "bioclip2": (
        Definition(
            "nLCA", "mean share of the target's path that top-down follows", _top_down_recall, needs_probabilities=True
        ),
    ),
}
IDENTITIES = (
    "hiclass and hiercls agree where no name stands twice: hF, macro = Depth F1. hierulz's hF counts the root and is "
    "larger. mbm's HierDist@1 over mistakes is crm's mistake severity; over all images it is that times the error "
    "rate, and half of hierulz's severity where all classes are equally deep."
)


def checked_sources(names: Sequence[str]) -> list[str]:
    """Return the sources of definitions that are asked for, all for "all"; a UserError for an unknown one."""
    if list(names) == ["all"]:
        return list(DEFINITIONS)
    for name in names:
        if name not in DEFINITIONS:
            raise unknown_name("source of definitions", name, list(DEFINITIONS))
    return list(names)


def defined_values(examples: RankedExamples, sources: Sequence[str]) -> Iterator[tuple[str, Definition, float]]:
    """Yield (source, definition, value) of those definitions that these examples suffice for."""
    for source in sources:
        for definition in DEFINITIONS[source]:
            has_values = examples.probabilities is not None or not definition.needs_probabilities
            if has_values and examples.ranked.shape[1] >= definition.ranks:
                yield source, definition, definition.value(examples)
