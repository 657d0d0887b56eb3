"""The probabilities of all nodes of a tree, and what decision rules and selective metrics take from them.

Shapes: B examples of a chunk, K classes, N nodes numbered as `Nodes` numbers them, G groups of nodes with equal
information, R steps from a class to the root.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from hierbench.hierarchy.label_tree import Hierarchy
from hierbench.hierarchy.levels import nodes_on
from hierbench.hierarchy.nodes import Nodes
from hierbench.metrics.ranked_classes import rows_at_a_time

TIE = 1e-12  # numbers that differ by less are equal: sums in another order differ by a thousandth of it


@dataclass(frozen=True, eq=False)
class NodeTables:
    """What rules ask of a tree, on one device.

    Attributes:
        nodes: its nodes.
        information: [N] float64, log2(K / classes at or below the node): 0 for the root, log2 K for a class.
        order: [N] int64, the place of each node among all in order of depth, then number: ties go to the smallest.
        children: [N - 1] int64, all nodes but the root, sorted by their parents.
        first_child: [N] int64, where the children of each node begin there.
        num_children: [N] int64.
        groups: G lists of the nodes of equal information by order, most informative first.
        levels: L lists of the nodes of each level, coarsest first.
    """

    nodes: Nodes
    information: Tensor
    order: Tensor
    children: Tensor
    first_child: Tensor
    num_children: Tensor
    groups: Sequence["NodeList"]
    levels: Sequence["NodeList"]


class NodeList(NamedTuple):
    """Some nodes, int64, and the columns that they are: a slice where they are consecutive, which takes no copy."""

    nodes: Tensor
    columns: Tensor | slice

    @classmethod
    def of(cls, nodes: Tensor) -> "NodeList":
        """Return some nodes, one at least."""
        first = int(nodes[0])
        is_consecutive = torch.equal(nodes, torch.arange(first, first + len(nodes), device=nodes.device))
        return cls(nodes, slice(first, first + len(nodes)) if is_consecutive else nodes)


@lru_cache(maxsize=8)
def node_tables(hierarchy: Hierarchy, device: torch.device) -> NodeTables:
    """Return the tables of a tree on a device."""
    nodes = nodes_on(hierarchy, device)
    num_children = torch.bincount(nodes.parent[1:], minlength=nodes.num_nodes)
    by_depth = nodes.by_depth
    informative = by_depth[nodes.num_leaves[by_depth].sort(stable=True).indices]
    group_sizes = nodes.num_leaves[informative].unique_consecutive(return_counts=True)[1].tolist()
    return NodeTables(
        nodes,
        (nodes.num_leaves[0].double() / nodes.num_leaves.double()).log2(),
        nodes.row_of,
        1 + nodes.parent[1:].sort(stable=True).indices,
        num_children.cumsum(0) - num_children,
        num_children,
        [NodeList.of(group) for group in informative.split(group_sizes)],
        [NodeList.of(level) for level in nodes.levels.split(list(hierarchy.level_sizes))],
    )


class NodeProbabilities:
    """Probabilities of the classes of a chunk of examples, and of all nodes above them, in float64.

    Attributes:
        classes: [B, K].
        hierarchy: over the K classes.
        tables: of the tree.
        top: [B] int64, the best-ranked class of each example.
    """

    def __init__(self, probabilities: Tensor, hierarchy: Hierarchy, top: Tensor | None = None) -> None:
        self.classes = probabilities.double()
        self.hierarchy = hierarchy
        self.tables = node_tables(hierarchy, probabilities.device)
        self.top = first_largest(self.classes) if top is None else top

    def __len__(self) -> int:
        """Return B."""
        return len(self.classes)

    @cached_property
    def nodes(self) -> Tensor:
        """[B, N]: the sum over the classes at or below each node; exactly 1 for the root."""
        sums = self.tables.nodes.leaf_sums(self.classes)
        sums[:, 0] = 1.0
        return sums

    @cached_property
    def climb(self) -> tuple[Tensor, Tensor]:
        """[B, R] the probabilities, and [B, R] the nodes, from the best class up to the root.

        The climb of a shallow class stands at the class until it leaves it. A sum that rounding makes smaller than that
        of the node below is raised to it, so that a row of probabilities never falls.
        """
        up = self.tables.nodes.paths.flip(1)[self.top]
        climbed = torch.cat([up, torch.zeros_like(up[:, :1])], dim=1)
        return self.nodes.gather(1, climbed).cummax(dim=1).values.clamp_max(1.0), climbed

    @cached_property
    def by_information(self) -> tuple[Tensor, Tensor]:
        """[B, G] the largest probability of each group, and [B, G] its node, most informative group first.

        A rule that looks at probability and information alone never answers another node of a group.
        """
        best = [group.nodes[first_largest(self.nodes[:, group.columns])] for group in self.tables.groups]
        nodes = torch.stack(best, dim=1)
        return self.nodes.gather(1, nodes), nodes

    @cached_property
    def by_level(self) -> "LevelBest":
        """The most probable node of each level; ties go to the lower index of the level.

        A class above the deepest level stands in at every level below itself.
        """
        levels = self.tables.levels
        best = [self.nodes[:, level.columns].max(dim=1) for level in levels]  # the first of the largest
        return LevelBest(
            torch.stack([values for values, _ in best], dim=1),
            torch.stack([index for _, index in best], dim=1),
            torch.stack([level.nodes[index] for level, (_, index) in zip(levels, best, strict=True)], dim=1),
        )

    @cached_property
    def descent(self) -> tuple[Tensor, Tensor]:
        """[B, L + 1] the nodes from the root down to the best child at each step, and [B] the largest runner-up.

        The row of a class that is reached early is filled with it. The runner-up is the most probable node that was
        passed by; 0 where every node on the way has one child.
        """
        return _descend(self)


class LevelBest(NamedTuple):
    """The most probable node of each level, coarsest first: [B, L] its probability, place in the level, and number."""

    probability: Tensor
    place: Tensor
    node: Tensor


def chunks(
    probabilities: Tensor, hierarchy: Hierarchy, top: Tensor | None = None
) -> Iterator[tuple[slice, NodeProbabilities]]:
    """Yield the rows of one chunk of probabilities [N, K] after another, and their node probabilities.

    Args:
        probabilities: [N, K].
        hierarchy: over the K classes.
        top: [N] the best-ranked classes, where they are not the most probable ones.
    """
    rows = rows_at_a_time(nodes_on(hierarchy, probabilities.device).num_nodes)
    for start in range(0, len(probabilities), rows):
        part = slice(start, start + rows)
        yield part, NodeProbabilities(probabilities[part], hierarchy, None if top is None else top[part])


def first_largest(values: Tensor) -> Tensor:
    """Return the first column [B] of values [B, S] that is largest, within `TIE`."""
    return (values >= values.amax(dim=1, keepdim=True) - TIE).view(torch.uint8).argmax(dim=1)


def best_column(scores: Tensor, probabilities: Tensor, order: Tensor) -> Tensor:
    """Return the column [B] of the largest score; ties go to the larger probability, then to the smallest in order.

    Args:
        scores: [B, S].
        probabilities: [B, S] of the nodes of the columns.
        order: [B, S] or [S], see `NodeTables`.
    """
    largest, columns = scores.max(dim=1)
    tied = scores >= (largest - TIE)[:, None]
    rows = (tied.sum(dim=1) > 1).nonzero()[:, 0]
    if len(rows):
        among = torch.where(tied[rows], probabilities[rows], -torch.inf)
        tied = among >= among.amax(dim=1, keepdim=True) - TIE
        places = order.expand(scores.shape)[rows]
        columns[rows] = torch.where(tied, places, torch.iinfo(places.dtype).max).argmin(dim=1)
    return columns


def _descend(chunk: NodeProbabilities) -> tuple[Tensor, Tensor]:
    tables = chunk.tables
    node = torch.zeros(len(chunk), dtype=torch.int64, device=chunk.classes.device)
    steps = [node]
    runner_up = chunk.classes.new_zeros(len(chunk))
    for _ in range(chunk.hierarchy.num_levels):
        rows = (tables.num_children[node] > 0).nonzero()[:, 0]
        counts = tables.num_children[node[rows]]
        ends = counts.cumsum(0)
        parent = torch.repeat_interleave(torch.arange(len(rows), device=rows.device), counts)  # of each child
        within = torch.arange(len(parent), device=rows.device) - (ends - counts)[parent]
        child = tables.children[tables.first_child[node[rows]][parent] + within]
        values = chunk.nodes[rows[parent], child]
        best = values.new_zeros(len(rows)).scatter_reduce(0, parent, values, "amax")
        tied = values >= best[parent] - TIE
        number = torch.where(tied, within, len(tables.children))
        first = torch.full_like(rows, len(tables.children)).scatter_reduce(0, parent, number, "amin")
        others = torch.where(within == first[parent], 0.0, values)
        second = values.new_zeros(len(rows)).scatter_reduce(0, parent, others, "amax")
        runner_up[rows] = torch.maximum(runner_up[rows], second)
        node = node.clone()
        node[rows] = child[ends - counts + first]
        steps.append(node)
    return torch.stack(steps, dim=1), runner_up
