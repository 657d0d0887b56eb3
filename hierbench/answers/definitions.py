"""Numbers of one name that publications define in different ways, as metrics of the same predictions.

Shapes: N examples, K classes, k ranked classes, L levels.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from hierbench.answers.decision_rule import answer_nodes, find_rule
from hierbench.answers.node_metrics import curve_of, curve_steps, example_metrics
from hierbench.hierarchy.label_tree import Hierarchy
from hierbench.hierarchy.levels import class_distances, classes_at_distances, nodes_on
from hierbench.metrics.metric import Metric
from hierbench.metrics.metric_inputs import Evidence
from hierbench.metrics.node_probabilities import node_tables
from hierbench.utils.errors import unknown_name


def _of_best(
    title: str, formula: str, contributions: Callable[..., Tensor], value: Any = None, size: int = 1, k: int = 0
) -> Metric:
    """Return a metric of the best classes [N], or of the k best [N, k]."""

    def needs(evidence: Evidence, k: int) -> tuple[Tensor, ...]:
        return (evidence.ranked(k) if k else evidence.top,)

    name = f"{title.partition('@')[0]}@{k}" if k else title
    better: Literal["higher", "lower"] = "lower" if title.startswith(("Mistake", "HierDist")) else "higher"
    return Metric(name, title, better, "", formula, "", needs, contributions, value, size=lambda _: size, ranked=True)


def _of_probabilities(title: str, formula: str, contributions: Callable[..., Tensor], **more: Any) -> Metric:
    """Return a metric of the probabilities of all classes."""
    return Metric(title, title, "higher", "", formula, "", lambda e, _: (e.probabilities,), contributions, **more)


def _name_counts(best: Tensor, targets: Tensor, tree: Hierarchy) -> Tensor:
    """Return [N, 4] names on the path of the best class, on that of the target, on both, and F1 of the three."""
    names = [
        {level[place] for level, place in zip(tree.level_names, places, strict=True)}
        for places in tree.level_targets.tolist()
    ]
    pairs = list(zip(best.tolist(), targets.tolist(), strict=True))
    sizes = [(len(names[c]), len(names[y]), len(names[c] & names[y])) for c, y in pairs]
    predicted, true, shared = torch.tensor(sizes, dtype=torch.float64).T
    return torch.stack([predicted, true, shared, 2.0 * shared / (predicted + true)], dim=1)


def _of_nodes(name: str, *, root: bool = False) -> Callable[..., Tensor]:
    """Return the contributions to a metric of nodes, of the best classes."""

    def contributions(best: Tensor, targets: Tensor, tree: Hierarchy) -> Tensor:
        first = nodes_on(tree, best.device).num_inner
        return example_metrics(first + best, first + targets, tree, root=root)[name][:, None]

    return contributions


def _information(best: Tensor, targets: Tensor, tree: Hierarchy) -> Tensor:
    """Return [N, 2] the information of the LCA relative to the target's, and F1 with that to the best class's."""
    tables = node_tables(tree, best.device)
    nodes = [tables.nodes.num_inner + classes for classes in (best, targets)]
    shared, predicted, true = (tables.information[n] for n in (tables.nodes.common_ancestors(*nodes), *nodes))
    return torch.stack([shared / true, 2.0 * shared / (predicted + true)], dim=1)


def _curve_steps(probabilities: Tensor, targets: Tensor, tree: Hierarchy) -> Tensor:
    return curve_steps(probabilities, nodes_on(tree, targets.device).num_inner + targets, tree)


def _top_down_recall(probabilities: Tensor, targets: Tensor, tree: Hierarchy) -> Tensor:
    nodes = answer_nodes(find_rule("top_down"), probabilities, tree, {})
    return example_metrics(nodes, nodes_on(tree, nodes.device).num_inner + targets, tree)["hr"][:, None]


def _distances(ranked: Tensor, targets: Tensor, tree: Hierarchy) -> Tensor:
    """Return [N, k] LCA heights (in edges) of the targets and the ranked classes."""
    return class_distances(ranked, targets, tree).double()


def _mean(ranked: Tensor, targets: Tensor, tree: Hierarchy) -> Tensor:
    return _distances(ranked, targets, tree).mean(dim=1, keepdim=True)


def _over_mistakes(ranked: Tensor, targets: Tensor, tree: Hierarchy) -> Tensor:
    """Return [N, 2] 1 and the mean distance where the best class is wrong, else 0."""
    wrong = (ranked[:, :1] != targets[:, None]).double()
    return torch.cat([wrong, wrong * _mean(ranked, targets, tree)], dim=1)


def _least(ranked: Tensor, targets: Tensor, tree: Hierarchy) -> Tensor:
    return _distances(ranked, targets, tree).amin(dim=1, keepdim=True)


def _precision(ranked: Tensor, targets: Tensor, tree: Hierarchy) -> Tensor:
    """Return [N, 2] the sum of 1 - D / max D over the k best classes, and the largest that k classes can have."""
    nearest = classes_at_distances(tree, targets.device).cumsum(dim=1).clamp_max(ranked.shape[1])
    taken = nearest.diff(dim=1, prepend=torch.zeros_like(nearest[:, :1]))  # of the k nearest, at each distance
    values = 1.0 - torch.arange(tree.height + 1, dtype=torch.float64, device=targets.device) / tree.height
    reached = (1.0 - _distances(ranked, targets, tree) / tree.height).sum(dim=1)
    return torch.stack([reached, (taken * values).sum(dim=1)[targets]], dim=1)


def _ratio(above: int, below: int) -> Callable[[Tensor, int], Tensor]:
    """Return the value that is the quotient of two sums."""
    return lambda totals, _: totals[above] / totals[below]


DEFINITIONS: dict[str, tuple[Metric, ...]] = {
    "hiclass": (
        _of_best(
            "hP", "sum of |S(c) & S(y)| / sum of |S(c)|, sets of names without the root", _name_counts, _ratio(3, 1), 4
        ),
        _of_best("hR", "sum of |S(c) & S(y)| / sum of |S(y)|", _name_counts, _ratio(3, 2), 4),
        _of_best("hF", "2 hP hR / (hP + hR), of these sums", _name_counts, lambda t, _: 2 * t[3] / (t[1] + t[2]), 4),
        _of_best("hF, macro", "mean of 2 |S(c) & S(y)| / (|S(c)| + |S(y)|)", _name_counts, _ratio(4, 0), 4),
    ),
    "hierulz": (
        _of_best("hF", "mean hF1 of paths of nodes with the root", _of_nodes("hf", root=True)),
        _of_best("Mistake severity", "mean edges between c and y, over all images", _of_nodes("edges")),
    ),
    "hiercls": (
        _of_best("Exact", "mean [c = y]", _of_nodes("exact")),
        _of_best("Depth F1", "mean of 2 d(LCA) / (d(c) + d(y))", _of_nodes("hf")),
        _of_best("Info recall", "mean of I(LCA) / I(y)", _information, _ratio(1, 0), 2),
        _of_best("Info F1", "mean of 2 I(LCA) / (I(c) + I(y))", _information, _ratio(2, 0), 2),
        _of_probabilities(
            "AC (info)",
            "area under correct over info recall",
            _curve_steps,
            value=lambda steps, _: curve_of(steps).area(),
            summed=False,
        ),
    ),
    "mbm": (
        _of_best("HierDist@1", "mean D(y, c) over all images", _mean, k=1),
        _of_best("HierDist@1, mistakes", "mean D(y, c) over mistakes", _over_mistakes, _ratio(2, 1), 2, 1),
        _of_best("HierDist@5", "mean D over the 5 best, all images", _mean, k=5),
        _of_best(
            "HierDist@5, mistakes", "mean D over the 5 best where c_1 is wrong", _over_mistakes, _ratio(2, 1), 2, 5
        ),
        _of_best("HierDist@5, best", "mean of the least D among the 5 best", _least, k=5),
        _of_best("h-precision@5", "sum of 1 - D / max D over the 5 best / its largest", _precision, _ratio(1, 2), 2, 5),
    ),
    "crm": (
        _of_best("Mistake severity", "mean D(y, c) over mistakes", _over_mistakes, _ratio(2, 1), 2, 1),
        _of_best("HierDist@5", "mean D over the 5 best, all images", _mean, k=5),
    ),
    "bioclip2": (_of_probabilities("nLCA", "mean share of the target's path that top-down follows", _top_down_recall),),
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
