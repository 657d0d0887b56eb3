"""The smallest sets of classes below at most m nodes that hold an example's most probable classes.

Mortier et al., "Conformal prediction in hierarchical classification with constrained representation complexity", 2025.
The classes are added by falling probability. For each number of nodes c <= m the smallest cover of the classes so far
is kept at every node: it is one node taken whole, or the covers of its children with classes in them, which share the c
nodes among them. A new class changes the covers of its ancestors alone.

From three nodes on, these sets need not grow, nor their probabilities: the score of a class is the largest probability
of all sets until then, so that {classes of a score <= q} always lies in the last set of such a score.

Shapes: B examples, K classes, N nodes, L levels, m nodes of a cover. The covers of some classes by 1 to m nodes are
[m, 2 + m] float64: the number of classes below the nodes, infinity where there is no such cover; their probability,
which decides between covers of one size; and the nodes, filled with `NONE`.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from hierbench.metrics.node_probabilities import NodeProbabilities

NONE = -1  # in a list of nodes
SIZE, MASS, NODES = 0, 1, slice(2, None)  # of a cover


class Covers:
    """Covers of the most probable classes of B examples, at every node that has some of them below."""

    def __init__(self, chunk: NodeProbabilities, most: int) -> None:
        self.chunk = chunk
        self.most = most
        shape = (len(chunk), chunk.tables.nodes.num_nodes)
        self.covers = _no_covers(chunk.nodes, *shape, most)
        self.touched = torch.zeros(shape, dtype=torch.int64, device=chunk.nodes.device)  # children with classes
        self.first = torch.full((*shape, most), NONE, device=chunk.nodes.device)  # the first m of these children

    def add(self, rows: Tensor, classes: Tensor) -> None:
        """Add a class [R] to the classes of each of some examples [R]."""
        tree = self.chunk.tables.nodes
        node = tree.num_inner + classes
        self.covers[rows, node] = self._whole(rows, node)
        for _ in range(tree.paths.shape[1]):
            below = node > 0
            rows = rows[below]
            child = node[below]
            node = tree.parent[child]
            is_listed = (self.first[rows, node] == child[:, None]).any(dim=1) | (self.touched[rows, node] > self.most)
            self._touch(rows[~is_listed], node[~is_listed], child[~is_listed])
            self.covers[rows, node] = self._best(rows, node)

    def _touch(self, rows: Tensor, node: Tensor, child: Tensor) -> None:
        place = self.touched[rows, node]
        listed = place < self.most
        self.first[rows[listed], node[listed], place[listed]] = child[listed]
        self.touched[rows, node] += 1

    def _best(self, rows: Tensor, node: Tensor) -> Tensor:
        """Return the covers [R, m, 2 + m] at nodes [R] from those of their children."""
        best = self.covers[rows, self.first[rows, node, 0]]
        for place in range(1, self.most):
            child = self.first[rows, node, place]
            joined = _join(best, self.covers[rows, child.clamp_min(0)], self.most)
            best = torch.where((child != NONE)[:, None, None], joined, best)
        single = self._whole(rows, node)
        touched = self.touched[rows, node, None, None]
        # One child: its cover is never larger than the node, and the same set where it has all of its classes.
        best = torch.where(touched > 1, _smaller(best, single), best)
        return torch.where(touched > self.most, single, best)

    def _whole(self, rows: Tensor, node: Tensor) -> Tensor:
        """Return the covers of nodes [R] that are the node itself, for every number of nodes."""
        covers = _no_covers(self.chunk.nodes, len(node), self.most)
        covers[:, :, SIZE] = self.chunk.tables.nodes.num_leaves[node].double()[:, None]
        covers[:, :, MASS] = self.chunk.nodes[rows, node, None]
        covers[:, :, 2] = node[:, None].double()
        return covers


def _no_covers(like: Tensor, *shape: int) -> Tensor:
    """Return [*shape, 2 + m] without a cover; m is the last of the shape."""
    covers = torch.full((*shape, 2 + shape[-1]), float(NONE), dtype=torch.float64, device=like.device)
    covers[..., SIZE] = torch.inf
    covers[..., MASS] = 0.0
    return covers


def _join(first: Tensor, second: Tensor, most: int) -> Tensor:
    """Return the best covers that are one of each, with the nodes shared in every way."""
    joined = _no_covers(first, len(first), most)
    for num in range(2, most + 1):
        for num_first in range(1, num):
            new = first[:, num_first - 1].clone()
            added = second[:, num - num_first - 1]
            new[:, :2] += added[:, :2]
            new[:, 2 + num_first : 2 + num] = added[:, 2 : 2 + num - num_first]
            joined[:, num - 1] = _smaller(joined[:, num - 1], new)
    return joined


def _smaller(first: Tensor, second: Tensor) -> Tensor:
    """Return, for each number of nodes, the smaller cover; of two of one size the more probable, else the first."""
    is_smaller = second[..., SIZE] < first[..., SIZE]
    is_likelier = (second[..., SIZE] == first[..., SIZE]) & (second[..., MASS] > first[..., MASS])
    return torch.where((is_smaller | is_likelier)[..., None], second, first)


def cover_scores(chunk: NodeProbabilities, targets: Tensor, most: int) -> Tensor:
    """Return the score [B] of a class [B] of each example: the largest probability of the covers until it is added."""
    scores = chunk.classes.new_zeros(len(chunk))
    for classes, mass, _, waiting in _sequence(chunk, most):
        scores = torch.where(waiting, torch.maximum(scores, mass), scores)
        waiting &= classes != targets
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
    tree = chunk.tables.nodes
    paths = torch.cat([tree.paths, torch.zeros_like(tree.paths[:, :1])], dim=1)
    return (paths[None, :, :, None] == chosen[:, None, None, :]).flatten(2).any(dim=2)


def _sequence(chunk: NodeProbabilities, most: int) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """Yield, after one class more: that class [B], mass [B] and nodes [B, m] of the cover, and who still asks [B].

    The caller takes examples out of the last. A class that the cover already holds does not change the cover; once it
    holds all, nothing does. It ends when that is so for everyone who asks.
    """
    order = chunk.classes.argsort(dim=1, descending=True, stable=True)
    covers = Covers(chunk, most)
    waiting = torch.ones(len(chunk), dtype=torch.bool, device=chunk.classes.device)
    nodes = torch.full((len(chunk), most), NONE, device=chunk.classes.device)
    mass = chunk.classes.new_zeros(len(chunk))
    holds_all = torch.zeros_like(waiting)
    for place in range(order.shape[1]):
        classes = order[:, place]
        rows = (waiting & ~holds_all).nonzero()[:, 0]
        if not len(rows):
            return
        covers.add(rows, classes[rows])  # also one that the cover holds: a later cover may need it
        rows = rows[~_in_cover(chunk, nodes[rows], classes[rows])]
        if len(rows):
            at_root = covers.covers[rows, 0]
            best = at_root[torch.arange(len(rows), device=rows.device), _fewest(at_root)]
            mass[rows] = best[:, MASS].to(mass)
            nodes[rows] = best[:, NODES].long()
            holds_all[rows] = best[:, SIZE] == order.shape[1]
        yield classes, mass, nodes, waiting


def _fewest(covers: Tensor) -> Tensor:
    """Return which number of nodes [B] has the smallest cover, less one; the more probable, then fewer nodes."""
    least = covers[..., SIZE] == covers[..., SIZE].amin(dim=1, keepdim=True)
    mass = torch.where(least, covers[..., MASS], -1.0)
    return (mass == mass.amax(dim=1, keepdim=True)).to(torch.uint8).argmax(dim=1)


def _in_cover(chunk: NodeProbabilities, nodes: Tensor, classes: Tensor) -> Tensor:
    """Return whether classes [R] lie at or below one of the nodes [R, m] of each."""
    tree = chunk.tables.nodes
    path = tree.paths[classes]
    return (path[:, :, None] == nodes[:, None, :]).flatten(1).any(dim=1) | (nodes == 0).any(dim=1)
