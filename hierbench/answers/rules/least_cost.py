"""The node, or the class, of the least expected cost: the Bayes rule of a cost.

Costs along the tree are sums over ancestors: with S(n) the sum of p over the nodes from below the root to n, the
expected number of edges between n and the target is d(n) - 2 S(n) plus a constant. So no [N, K] table is needed.

Shapes: B examples of a chunk, K classes, N nodes.
"""

from typing import Any, Literal

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from hierbench.answers.rule import Rule
from hierbench.metrics.node_probabilities import NodeProbabilities, best_column
from hierbench.metrics.ranked_classes import as_tensor

Cost = Literal["edges", "information", "hf"]


def least_cost(
    given: NodeProbabilities, cost: Cost | ArrayLike | Tensor = "edges", beta: float = 1.0, root: bool = False
) -> Tensor:
    """Return the node of the least expected cost, over all nodes.

    Args:
        given: the probabilities.
        cost: "edges" between the node and the target, "information" I(n) + I(y) - 2 I(LCA), "hf" 1 - hF_beta of their
            paths, or a table [N, K], nodes as `Nodes` numbers them.
        beta: of hF.
        root: whether hF counts the root as a node of every path.
    """
    tree = given.tables.nodes
    information = given.tables.information
    if isinstance(cost, str) and cost == "edges":
        scores = 2.0 * tree.ancestor_sums(given.nodes) - tree.depth
    elif isinstance(cost, str) and cost == "information":
        gained = information - information[tree.parent]
        scores = 2.0 * tree.ancestor_sums(given.nodes * gained) - information
    elif isinstance(cost, str) and cost == "hf":
        scores = _expected_hf(given, beta, root)
    elif isinstance(cost, str):
        raise ValueError(f'cost must be "edges", "information", "hf" or a table, got {cost!r}')
    else:
        scores = -given.classes @ _table(given, cost).t()
    return best_column(scores, given.nodes, given.tables.order)


def crm(given: NodeProbabilities) -> Tensor:
    """Return the class of the least expected hierarchical distance."""
    first = given.tables.nodes.num_inner
    scores = -class_costs(given)
    return first + best_column(scores, given.classes, given.tables.order[first:])


def class_costs(given: NodeProbabilities) -> Tensor:
    """Return the expected hierarchical distance of each class from the target, [B, K]."""
    tree = given.tables.nodes
    saved = tree.distance[tree.parent] - tree.distance  # by an edge, for every target below it
    return tree.distance[0] - tree.path_sums(given.nodes * saved)


def _expected_hf(given: NodeProbabilities, beta: float, root: bool) -> Tensor:
    """Return [B, N] the expected hF_beta of each node: a sum over ancestors for each depth that a class has."""
    tree = given.tables.nodes
    counted = int(root)
    depth = tree.depth.double()
    class_depth = tree.depth[tree.num_inner :]
    expected = torch.zeros_like(given.nodes)
    depths = class_depth.unique().tolist()
    for target_depth in depths:
        of_this = class_depth == target_depth
        of_depth = given.nodes if len(depths) == 1 else tree.leaf_sums(torch.where(of_this, given.classes, 0.0))
        shared = tree.ancestor_sums(of_depth) + counted * of_depth[:, :1]
        size = depth + counted + beta**2 * (target_depth + counted)
        expected += (1.0 + beta**2) * shared / size
    return expected


def _table(given: NodeProbabilities, cost: Any) -> Tensor:
    table = as_tensor(cost, "a cost must be a table [N, K] of numbers").to(given.classes)
    shape = (given.tables.nodes.num_nodes, given.hierarchy.num_classes)
    if tuple(table.shape) != shape:
        raise ValueError(f"a cost must be a table {list(shape)}, a row per node, got {tuple(table.shape)}")
    return table


LEAST_COST = Rule(least_cost, "Least cost", "Bayes rule; Plaud et al., ICML 2025")
CRM = Rule(crm, "CRM", "Karthik et al., ICLR 2021", abstains=False)
