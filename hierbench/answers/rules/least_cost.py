"""The node, or the class, of the least expected cost: the Bayes rule of a cost.

Costs along the tree are sums over ancestors: with S(n) the sum of p over the nodes from below the root to n, the
expected number of edges between n and the target is d(n) - 2 S(n) plus a constant. So no [N, K] table is needed.

Shapes: B examples of a chunk, K classes, N nodes.
"""

from typing import Any, Literal

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from hierbench.answers.decision_rule import rule
from hierbench.metrics.node_probabilities import NodeProbabilities, best_column
from hierbench.metrics.ranked_classes import as_tensor

Cost = Literal["edges", "information", "hf"]


@rule("Least cost", "Bayes rule; Plaud et al., ICML 2025")
def least_cost(
    chunk: NodeProbabilities, cost: Cost | ArrayLike | Tensor = "edges", beta: float = 1.0, root: bool = False
) -> Tensor:
    """Return the node of the least expected cost, over all nodes.

    Args:
        chunk: the probabilities.
        cost: "edges" between the node and the target, "information" I(n) + I(y) - 2 I(LCA), "hf" 1 - hF_beta of their
            paths, or a table [N, K], nodes as `Nodes` numbers them.
        beta: of hF.
        root: whether hF counts the root as a node of every path.
    """
    tree = chunk.tables.nodes
    information = chunk.tables.information
    if isinstance(cost, str) and cost == "edges":
        scores = 2.0 * tree.ancestor_sums(chunk.nodes) - tree.depth
    elif isinstance(cost, str) and cost == "information":
        gained = information - information[tree.parent]
        scores = 2.0 * tree.ancestor_sums(chunk.nodes * gained) - information
    elif isinstance(cost, str) and cost == "hf":
        scores = _expected_hf(chunk, beta, root)
    elif isinstance(cost, str):
        raise ValueError(f'cost must be "edges", "information", "hf" or a table, got {cost!r}')
    else:
        scores = -chunk.classes @ _table(chunk, cost).t()
    return best_column(scores, chunk.nodes, chunk.tables.order)


@rule("CRM", "Karthik et al., ICLR 2021", abstains=False)
def crm(chunk: NodeProbabilities) -> Tensor:
    """Return the class of the least expected hierarchical distance."""
    first = chunk.tables.nodes.num_inner
    scores = -chunk.tables.nodes.expected_distances(chunk.nodes)
    return first + best_column(scores, chunk.classes, chunk.tables.order[first:])


def _expected_hf(chunk: NodeProbabilities, beta: float, root: bool) -> Tensor:
    """Return [B, N] the expected hF_beta of each node: a sum over ancestors for each depth that a class has."""
    tree = chunk.tables.nodes
    counted = int(root)
    depth = tree.depth.double()
    class_depth = tree.depth[tree.num_inner :]
    expected = torch.zeros_like(chunk.nodes)
    depths = class_depth.unique().tolist()
    for target_depth in depths:
        at_depth = class_depth == target_depth
        mass_at_depth = chunk.nodes if len(depths) == 1 else tree.leaf_sums(torch.where(at_depth, chunk.classes, 0.0))
        shared = tree.ancestor_sums(mass_at_depth) + counted * mass_at_depth[:, :1]
        size = depth + counted + beta**2 * (target_depth + counted)
        expected += (1.0 + beta**2) * shared / size
    return expected


def _table(chunk: NodeProbabilities, cost: Any) -> Tensor:
    table = as_tensor(cost, "a cost must be a table [N, K] of numbers").to(chunk.classes)
    shape = (chunk.tables.nodes.num_nodes, chunk.hierarchy.num_classes)
    if tuple(table.shape) != shape:
        raise ValueError(f"a cost must be a table {list(shape)}, a row per node, got {tuple(table.shape)}")
    return table
