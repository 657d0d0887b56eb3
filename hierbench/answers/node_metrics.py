"""Metrics of predicted nodes, for targets that may be any node too, and Valmadre's curve.

Shapes: N examples. Nodes are numbered as `hierbench.hierarchy.Nodes` numbers them: 0 the root, num_inner + y class y.
"""

from typing import Any, Literal, NamedTuple

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from hierbench.hierarchy.label_tree import Hierarchy
from hierbench.metrics.metric import Metric
from hierbench.metrics.node_probabilities import NodeProbabilities, chunks, node_tables
from hierbench.metrics.ranked_classes import as_tensor


def _metric(name: str, title: str, better: Literal["higher", "lower"], unit: Any, formula: str) -> Metric:
    """Return a metric of a predicted node n and a target t, the mean of `example_metrics`."""

    def contributions(nodes: Tensor, targets: Tensor, tree: Hierarchy) -> Tensor:
        return example_metrics(nodes, targets, tree)[name][:, None]

    return Metric(
        name, title, better, unit, formula, SOURCE_OF_NODES, lambda evidence, _: (), contributions, of="nodes"
    )


SOURCE_OF_NODES = "Valmadre, NeurIPS 2022; Kosmopoulos et al., DMKD 2015"
# A(n): the nodes from below the root to n. I(n) = log2(K / classes below n). D: hierarchical distance.
NODE_METRICS = {
    metric.name: metric
    for metric in (
        _metric("correct", "Correct", "higher", "%", "mean [n is t or an ancestor of t]"),
        _metric("exact", "Exact", "higher", "%", "mean [n = t]"),
        _metric("hp", "hP", "higher", "%", "mean of |A(n) & A(t)| / |A(n)|, 1 for the root"),
        _metric("hr", "hR", "higher", "%", "mean of |A(n) & A(t)| / |A(t)|"),
        _metric("hf", "hF", "higher", "%", "mean of (1 + b^2) hP hR / (b^2 hP + hR)"),
        _metric("information", "Information", "higher", "bits", "mean of I(n)"),
        _metric("scaled_accuracy", "Information-scaled accuracy", "higher", "%", "mean of [correct] I(n) / log2 K"),
        _metric("edges", "Edges", "lower", "edges", "mean number of edges between n and t"),
        _metric("lca_distance", "LCA distance", "lower", "edges", "mean of D(LCA(n, t)) - D(t)"),
        _metric("coverage", "Coverage", "higher", "%", "mean of I(n) / log2 K"),
    )
}


def node_metrics(
    nodes: Tensor | ArrayLike,
    targets: Tensor | ArrayLike,
    hierarchy: Hierarchy,
    *,
    beta: float = 1.0,
    root: bool = False,
) -> dict[str, float]:
    """Return the metrics of predicted nodes, means over the examples; shares are between 0 and 1.

    Args:
        nodes: [N] predicted nodes.
        targets: [N] target nodes.
        hierarchy: whose nodes they are.
        beta: of hF.
        root: whether hP, hR and hF count the root as a node of every path.

    Raises:
        ValueError: no examples, other shapes, or a number that is no node.
    """
    predicted = _known_nodes(nodes, hierarchy, "nodes")
    true = _known_nodes(targets, hierarchy, "targets").to(predicted.device)
    if predicted.shape != true.shape:
        raise ValueError(f"nodes and targets must be [N] both, got {tuple(predicted.shape)} and {tuple(true.shape)}")
    if not len(predicted):
        raise ValueError("no examples to evaluate")
    num_nodes = node_tables(hierarchy, predicted.device).nodes.num_nodes
    pairs, counts = torch.unique(predicted * num_nodes + true, return_counts=True)  # each pair of nodes once
    values = example_metrics(pairs // num_nodes, pairs % num_nodes, hierarchy, beta=beta, root=root)
    return {name: float(value @ counts.double()) / len(true) for name, value in values.items()}


def example_metrics(
    nodes: Tensor, targets: Tensor, hierarchy: Hierarchy, *, beta: float = 1.0, root: bool = False
) -> dict[str, Tensor]:
    """Return the metrics of each example, [N] float64, of checked arguments of `node_metrics`."""
    tables = node_tables(hierarchy, nodes.device)
    tree = tables.nodes
    ancestor = tree.common_ancestors(nodes, targets)
    counted = int(root)
    shared, predicted, true = (tree.depth[each].double() + counted for each in (ancestor, nodes, targets))
    precision = torch.where(predicted > 0, shared / predicted, 1.0)
    recall = torch.where(true > 0, shared / true, 1.0)
    weighted = beta**2 * precision + recall
    correct = (ancestor == nodes).double()
    information = tables.information[nodes]
    coverage = information / tables.information[-1] if hierarchy.num_classes > 1 else torch.ones_like(information)
    return {
        "correct": correct,
        "exact": (nodes == targets).double(),
        "hp": precision,
        "hr": recall,
        "hf": torch.where(weighted > 0, (1.0 + beta**2) * precision * recall / weighted, 0.0),
        "information": information,
        "scaled_accuracy": correct * coverage,
        "edges": predicted + true - 2.0 * shared,
        "lca_distance": (tree.distance[ancestor] - tree.distance[targets]).double(),
        "coverage": coverage,
    }


def are_above(nodes: Tensor, targets: Tensor, hierarchy: Hierarchy) -> Tensor:
    """Return whether nodes [N] are the target nodes [N] or above them, bool: `correct` without the other metrics."""
    tree = node_tables(hierarchy, nodes.device).nodes
    on_path = (tree.paths[tree.some_class[targets]] == nodes[:, None]).any(dim=1) | (nodes == 0)
    return on_path & (tree.depth[nodes] <= tree.depth[targets])


def _known_nodes(values: Tensor | ArrayLike, hierarchy: Hierarchy, name: str) -> Tensor:
    """Return nodes [N] as int64; a ValueError unless they are numbers of nodes."""
    nodes = as_tensor(values, f"{name} must be integers [N]")
    most = node_tables(hierarchy, nodes.device).nodes.num_nodes - 1
    if nodes.ndim != 1 or nodes.is_floating_point() or nodes.dtype == torch.bool:
        raise ValueError(f"{name} must be integers [N], got {tuple(nodes.shape)} {nodes.dtype}")
    if len(nodes) and bool(((nodes < 0) | (nodes > most)).any()):
        raise ValueError(f"{name} must be nodes, from 0 to {most}")
    return nodes.long()


class AnswerCurve(NamedTuple):
    """Means over the examples at each threshold, from above 1 down to 0; [T] float64 each.

    Attributes:
        threshold: infinity first, where every answer is the root.
        correct: share of answers that are the target or above it.
        recall: information of the LCA by that of the target.
        precision: information of the LCA by that of the answer, 1 for the root.
        exact: share of answers that are the target.
    """

    threshold: Tensor
    correct: Tensor
    recall: Tensor
    precision: Tensor
    exact: Tensor

    def area(self, of: str = "correct", over: str = "recall") -> float:
        """Return the area under the largest value that is reached at this or a larger value of `over` (Valmadre)."""
        x, order = getattr(self, over).sort(stable=True)
        y = getattr(self, of)[order].flip(0).cummax(dim=0).values.flip(0)
        return float((torch.diff(x, prepend=x.new_zeros(1)) * y).sum())


def curve_steps(probabilities: Tensor, targets: Tensor, hierarchy: Hierarchy) -> Tensor:
    """Return [N, 5, G] float64: thresholds down to which each example answers a node, and what the node is worth.

    An example answers the nodes that are the most probable of all that are as informative, and more informative than
    every one that is more probable (Valmadre, NeurIPS 2022), from the root on; the last four are correct, recall,
    precision and exact.

    Args:
        probabilities: [N, K].
        targets: [N] nodes.
        hierarchy: over the K classes.
    """
    steps = list[Tensor]()
    for rows, chunk in chunks(probabilities, hierarchy):
        probability, nodes = _answers_of_thresholds(chunk)
        true = targets[rows, None].expand_as(nodes)
        values = _curve_values(nodes.flatten(), true.flatten(), hierarchy).reshape(4, *nodes.shape)
        steps.append(torch.cat([probability[:, None], values.transpose(0, 1)], dim=1))
    return torch.cat(steps)


def curve_of(steps: Tensor) -> AnswerCurve:
    """Return the curve of the `curve_steps` [N, 5, G] of all examples."""
    values = steps[:, 1:].transpose(0, 1)  # [4, N, G]
    at_root = values[:, :, 0].sum(dim=1)
    falling, order = steps[:, 0, 1:].flatten().sort(descending=True, stable=True)
    changes = values.diff(dim=2).flatten(1)
    sums = torch.cat([at_root[:, None], at_root[:, None] + changes[:, order].cumsum(dim=1)], dim=1)
    thresholds_and_end = torch.cat([falling.new_tensor([torch.inf]), falling, falling.new_tensor([-torch.inf])])
    last = thresholds_and_end[:-1] != thresholds_and_end[1:]  # of the changes at one threshold
    return AnswerCurve(thresholds_and_end[:-1][last], *(sums[:, last] / len(steps)))


def _answers_of_thresholds(chunk: NodeProbabilities) -> tuple[Tensor, Tensor]:
    """Return [B, G] thresholds down to which an example answers a node, falling, and [B, G] these nodes, root first."""
    probability, nodes = (part.flip(1) for part in chunk.by_information)  # least informative first
    larger = probability.flip(1).cummax(dim=1)  # from the most informative group on
    column = (probability.shape[1] - 1 - larger.indices).flip(1)
    return larger.values.flip(1), nodes.gather(1, column)


def _curve_values(nodes: Tensor, targets: Tensor, hierarchy: Hierarchy) -> Tensor:
    """Return [4, M] correct, recall, precision and exact of pairs of nodes [M]."""
    tables = node_tables(hierarchy, nodes.device)
    ancestor = tables.nodes.common_ancestors(nodes, targets)
    shared, predicted, true = (tables.information[each] for each in (ancestor, nodes, targets))
    return torch.stack(
        [
            (ancestor == nodes).double(),
            torch.where(true > 0, shared / true, 1.0),
            torch.where(predicted > 0, shared / predicted, 1.0),
            (nodes == targets).double(),
        ]
    )
