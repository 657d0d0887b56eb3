"""The smallest sets of classes below at most m nodes that hold an example's most probable classes.

Mortier et al., "Conformal prediction in hierarchical classification with constrained representation complexity", 2025.
The classes are added by falling probability. For each number of nodes c <= m the smallest cover of the classes so far
is kept at every node: it is one node taken whole, or the covers of its children with classes in them, which share the c
nodes among them. A new class changes the covers of its ancestors alone.

From three nodes on, these sets need not grow, nor their probabilities: the score of a class is the largest probability
of all sets until then, so that {classes of a score <= q} always lies in the last set of such a score.

Shapes: B examples, K classes, N nodes, L levels, m nodes of a cover; c - 1 is the index of a cover of c nodes.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from hierbench.metrics.node_probabilities import NodeProbabilities

NONE = -1  # in a list of nodes


@dataclass
class Cover:
    """The best covers of some classes by c = 1 to m nodes.

    Attributes:
        size: [B, m] float64, classes below the nodes; infinity where none is needed or possible.
        mass: [B, m] float64, their probability, which decides between covers of one size.
        nodes: [B, m, m] int64, the nodes of each, filled with `NONE`.
    """

    size: Tensor
    mass: Tensor
    nodes: Tensor


class Covers:
    """Covers of the most probable classes of B examples, at every node that has some of them below."""

    def __init__(self, chunk: NodeProbabilities, most: int) -> None:
        self.chunk = chunk
        self.most = most
        tree = chunk.tables.nodes
        shape = (len(chunk), tree.num_nodes)
        values = chunk.nodes
        self.size = values.new_full((*shape, most), torch.inf)
        self.mass = values.new_zeros((*shape, most))
        self.nodes = torch.full((*shape, most, most), NONE, device=values.device)
        self.touched = torch.zeros(shape, dtype=torch.int64, device=values.device)  # children with classes
        self.first = torch.full((*shape, most), NONE, device=values.device)  # the first m of these children

    def add(self, rows: Tensor, classes: Tensor) -> None:
        """Add a class [R] to the classes of each of some examples [R]."""
        tree = self.chunk.tables.nodes
        node = tree.num_inner + classes
        self._set(rows, node, _single_node(self.chunk, rows, node, self.most))
        for _ in range(tree.paths.shape[1]):
            below = node > 0
            rows = rows[below]
            child = node[below]
            node = tree.parent[child]
            is_listed = (self.first[rows, node] == child[:, None]).any(dim=1) | (self.touched[rows, node] > self.most)
            self._touch(rows[~is_listed], node[~is_listed], child[~is_listed])
            self._set(rows, node, self._best(rows, node))

    def _touch(self, rows: Tensor, node: Tensor, child: Tensor) -> None:
        place = self.touched[rows, node]
        listed = place < self.most
        self.first[rows[listed], node[listed], place[listed]] = child[listed]
        self.touched[rows, node] += 1

    def _best(self, rows: Tensor, node: Tensor) -> Cover:
        """Return the covers at nodes [R] from those of their children."""
        best = self._get(rows, self.first[rows, node, 0])
        for place in range(1, self.most):
            child = self.first[rows, node, place]
            joined = _join(best, self._get(rows, child.clamp_min(0)), self.most)
            best = _where((child != NONE)[:, None], joined, best)
        single = _single_node(self.chunk, rows, node, self.most)
        several = (self.touched[rows, node] > 1)[:, None]
        too_many = (self.touched[rows, node] > self.most)[:, None]
        # One child: its cover is never larger than the node, and the same set where it has all of its classes.
        return _where(too_many, single, _where(several, _smaller(best, single), best))

    def _get(self, rows: Tensor, node: Tensor) -> Cover:
        return Cover(self.size[rows, node], self.mass[rows, node], self.nodes[rows, node])

    def _set(self, rows: Tensor, node: Tensor, cover: Cover) -> None:
        self.size[rows, node] = cover.size
        self.mass[rows, node] = cover.mass
        self.nodes[rows, node] = cover.nodes

    def of_root(self) -> Cover:
        """Return the covers of all classes so far."""
        every = torch.arange(len(self.chunk), device=self.size.device)
        return self._get(every, torch.zeros_like(every))


def _single_node(chunk: NodeProbabilities, rows: Tensor, node: Tensor, most: int) -> Cover:
    """Return the covers of nodes [R] that are the node itself, for every number of nodes."""
    size = chunk.tables.nodes.num_leaves[node].double()[:, None].expand(-1, most)
    mass = chunk.nodes[rows, node][:, None].expand(-1, most)
    nodes = torch.full((len(node), most, most), NONE, device=node.device)
    nodes[:, :, 0] = node[:, None]
    return Cover(size, mass, nodes)


def _join(first: Cover, second: Cover, most: int) -> Cover:
    """Return the best covers that are one of each, with the nodes shared in every way."""
    size = torch.full_like(first.size, torch.inf)
    joined = Cover(size, torch.zeros_like(first.mass), torch.full_like(first.nodes, NONE))
    for num in range(2, most + 1):
        for num_first in range(1, num):
            num_second = num - num_first
            nodes = torch.full_like(first.nodes[:, 0], NONE)
            nodes[:, :num_first] = first.nodes[:, num_first - 1, :num_first]
            nodes[:, num_first:num] = second.nodes[:, num_second - 1, :num_second]
            new = Cover(
                (first.size[:, num_first - 1] + second.size[:, num_second - 1])[:, None],
                (first.mass[:, num_first - 1] + second.mass[:, num_second - 1])[:, None],
                nodes[:, None],
            )
            column = slice(num - 1, num)
            old = Cover(joined.size[:, column], joined.mass[:, column], joined.nodes[:, column])
            better = _smaller(old, new)
            joined.size[:, column] = better.size
            joined.mass[:, column] = better.mass
            joined.nodes[:, column] = better.nodes
    return joined


def _smaller(first: Cover, second: Cover) -> Cover:
    """Return, for each number of nodes, the smaller cover; of two of one size the more probable, else the first."""
    other = (second.size < first.size) | ((second.size == first.size) & (second.mass > first.mass))
    return _where(other, second, first)


def _where(condition: Tensor, first: Cover, second: Cover) -> Cover:
    return Cover(
        torch.where(condition, first.size, second.size),
        torch.where(condition, first.mass, second.mass),
        torch.where(condition[:, :, None], first.nodes, second.nodes),
    )


def cover_scores(chunk: NodeProbabilities, targets: Tensor, most: int) -> Tensor:
    """Return the score [B] of a class [B] of each example: the largest probability of the covers until it is added."""
    scores = chunk.classes.new_zeros(len(chunk))
    for classes, mass, _, waiting in _sequence(chunk, most):
        scores = torch.where(waiting, torch.maximum(scores, mass), scores)
        waiting &= classes != targets
        if not bool(waiting.any()):
            break
    return scores


def covered_classes(chunk: NodeProbabilities, bound: float, most: int) -> Tensor:
    """Return [B, K] bool: the classes of the last cover of each example before a probability exceeds the bound.

    Where the first cover, the most probable class, exceeds it, the set is that class.
    """
    chosen = torch.full((len(chunk), most), NONE, device=chunk.classes.device)
    chosen[:, 0] = chunk.tables.nodes.num_inner + chunk.top
    for _, mass, nodes, waiting in _sequence(chunk, most):
        waiting &= mass <= bound
        chosen[waiting] = nodes[waiting]
        if not bool(waiting.any()):
            break
    tree = chunk.tables.nodes
    paths = torch.cat([tree.paths, torch.zeros_like(tree.paths[:, :1])], dim=1)
    return (paths[None, :, :, None] == chosen[:, None, None, :]).flatten(2).any(dim=2)


def _sequence(chunk: NodeProbabilities, most: int) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """Yield, after one class more: that class [B], mass [B] and nodes [B, m] of the cover, and who still asks [B].

    The caller takes examples out of the last. A class that the cover already holds does not change the cover.
    """
    order = chunk.classes.argsort(dim=1, descending=True, stable=True)
    covers = Covers(chunk, most)
    waiting = torch.ones(len(chunk), dtype=torch.bool, device=chunk.classes.device)
    nodes = torch.full((len(chunk), most), NONE, device=chunk.classes.device)
    mass = chunk.classes.new_zeros(len(chunk))
    for place in range(order.shape[1]):
        classes = order[:, place]
        waiting_rows = waiting.nonzero()[:, 0]
        covers.add(waiting_rows, classes[waiting_rows])  # also one that the cover holds: a later cover may need it
        rows = (waiting & ~_in_cover(chunk, nodes, classes)).nonzero()[:, 0]
        if len(rows):
            every = covers.of_root()
            best = _fewest(every)
            mass[rows] = every.mass.gather(1, best[:, None])[rows, 0]
            nodes[rows] = every.nodes[rows, best[rows]]
        yield classes, mass, nodes, waiting


def _fewest(cover: Cover) -> Tensor:
    """Return which number of nodes [B] has the smallest cover, less one; the more probable, then fewer nodes."""
    least = cover.size == cover.size.amin(dim=1, keepdim=True)
    mass = torch.where(least, cover.mass, -1.0)
    return (mass == mass.amax(dim=1, keepdim=True)).to(torch.uint8).argmax(dim=1)


def _in_cover(chunk: NodeProbabilities, nodes: Tensor, classes: Tensor) -> Tensor:
    """Return whether a class [B] of each example lies at or below one of its nodes [B, m]."""
    tree = chunk.tables.nodes
    path = tree.paths[classes]
    return (path[:, :, None] == nodes[:, None, :]).flatten(1).any(dim=1) | (nodes == 0).any(dim=1)
