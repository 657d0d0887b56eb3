"""The real nodes of a tree as index tensors, and numerically safe sums along its paths, for methods and metrics.

Shapes: B examples (any leading dimensions), K classes, N nodes with the root, I = N - K inner nodes, L levels.

Nodes are numbered from the root, 0, over the other inner nodes, coarsest level first and in the order of
`Hierarchy.level_targets` within it, to the K classes in target order, I to N - 1. So a parent has a smaller number than
its children, and relabelling the classes moves only the last K. A leaf above the deepest level is one node here, not
one per level.

The sums go one edge up or down per step, all nodes of a depth at once, so that they take O(B N) memory and time. They
work on [N, B] in the order of the depths: there a depth is a slice, and adding a row is vectorised over the examples.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from hierbench.hierarchy.label_tree import Hierarchy
from hierbench.hierarchy.log_sums import ChildLogSums, add_log_sums

PAIRS = 1 << 14  # nodes whose paths are compared at a time
BLOCK = 1 << 19  # numbers that are summed at a time on a CPU: they stay in its cache


class Nodes(nn.Module):
    """Index tensors of a tree, which move with the method that they are part of and are not in its checkpoint.

    Attributes:
        num_nodes: N.
        num_inner: I; a class y is the node I + y.
        parent: [N] int64, 0 for the root itself.
        depth: [N] int64, edges from the root.
        height: [N] int64, edges down to the deepest leaf below.
        num_leaves: [N] int64, classes at or below a node.
        distance: [N] int64, the distance of two classes whose lowest common ancestor is the node; 0 for a class.
        paths: [K, L] int64, the nodes of a class's path from below the root to the class itself, filled with the class.
        on_path: [K, L] bool, False where `paths` is filled.
        levels: [M] int64, the node of each entry of the levels, coarsest level first, as `Hierarchy.level_sizes` counts
            them; a shallow leaf occurs once per level.
    """

    parent: Tensor
    depth: Tensor
    height: Tensor
    num_leaves: Tensor
    distance: Tensor
    paths: Tensor
    on_path: Tensor
    levels: Tensor
    some_class: Tensor  # [N] a class at or below each node
    by_depth: Tensor  # [N] the node of each row
    row_of: Tensor  # [N] the row of each node
    row_above: Tensor  # [N - 1] the parent's row, counted within its depth, of each row but the root's

    def __init__(self, hierarchy: Hierarchy) -> None:
        super().__init__()
        targets = hierarchy.level_targets
        num_classes = hierarchy.num_classes
        inner = [distances > 0 for distances in hierarchy.node_distances]  # per level; leaves have the distance 0
        starts = np.cumsum([1, *(int(level.sum()) for level in inner)])
        self.num_inner = int(starts[-1])
        self.num_nodes = self.num_inner + num_classes
        levels = []
        for level, (is_inner, start) in enumerate(zip(inner, starts[:-1], strict=True)):
            number = np.empty(len(is_inner), dtype=np.int64)
            number[targets[:, level]] = self.num_inner + np.arange(num_classes)
            number[is_inner] = start + np.arange(is_inner.sum())
            levels.append(number)
        paths = np.stack([numbers[targets[:, level]] for level, numbers in enumerate(levels)], axis=1)
        on_path = np.ones_like(paths, dtype=bool)
        on_path[:, 1:] = paths[:, 1:] != paths[:, :-1]
        class_depth = on_path.sum(axis=1)

        parent = np.zeros(self.num_nodes, dtype=np.int64)
        depth = np.zeros(self.num_nodes, dtype=np.int64)
        height = np.zeros(self.num_nodes, dtype=np.int64)
        above = np.concatenate([np.zeros((num_classes, 1), dtype=np.int64), paths[:, :-1]], axis=1)
        parent[paths[on_path]] = above[on_path]
        at_depth = np.broadcast_to(1 + np.arange(hierarchy.num_levels), paths.shape)
        depth[paths[on_path]] = at_depth[on_path]
        np.maximum.at(height, paths[on_path], (class_depth[:, None] - at_depth)[on_path])
        height[0] = hierarchy.height
        num_leaves = np.bincount(paths[on_path], minlength=self.num_nodes)
        num_leaves[0] = num_classes

        distance = np.full(self.num_nodes, hierarchy.height, dtype=np.int64)
        distance[np.concatenate(levels)] = np.concatenate(hierarchy.node_distances)

        by_depth = np.argsort(depth, kind="stable")
        row_of = np.argsort(by_depth)
        some_class = np.zeros(self.num_nodes, dtype=np.int64)
        some_class[paths] = np.arange(num_classes)[:, None]
        self.depth_sizes: list[int] = np.bincount(depth).tolist()  # nodes per depth, the root's first
        self.height_sizes: list[int] = np.bincount(height).tolist()  # nodes per height, the classes' first
        first_row = np.cumsum([0, *self.depth_sizes])
        above_row = row_of[parent[by_depth]] - first_row[depth[parent[by_depth]]]
        tables = {
            "parent": parent,
            "depth": depth,
            "height": height,
            "num_leaves": num_leaves,
            "distance": distance,
            "paths": paths,
            "on_path": on_path,
            "levels": np.concatenate(levels),
            "some_class": some_class,
            "by_depth": by_depth,
            "row_of": row_of,
            "row_above": above_row[1:],
        }
        for name, table in tables.items():
            self.register_buffer(name, torch.from_numpy(np.ascontiguousarray(table)), persistent=False)
        # Where all leaves are equally deep, the nodes' own order is that of the depths.
        self.in_order = bool((by_depth == np.arange(self.num_nodes)).all())

    def common_ancestors(self, nodes: Tensor, others: Tensor) -> Tensor:
        """Return the lowest common ancestors of nodes and others, of one shape, a node being its own ancestor."""
        lowest = []
        for some, other in zip(nodes.flatten().split(PAIRS), others.flatten().split(PAIRS), strict=True):
            below = self.some_class[some]
            same = self.paths.index_select(0, below) == self.paths.index_select(0, self.some_class[other])
            least = torch.minimum(self.depth[some], self.depth[other])
            shared = torch.minimum(same.sum(dim=1, dtype=torch.int32), least)
            lowest.append(torch.where(shared > 0, self.paths[below, (shared - 1).clamp_min(0)], 0))
        return torch.cat(lowest).view_as(nodes)

    def leaf_sums(self, values: Tensor) -> Tensor:
        """Return [B, N]: the sum over the classes at or below each node of values [B, K]; the root's is the total."""
        sums: Tensor = _SubtreeSums.apply(values, self, 0.0)
        return sums

    def leaf_log_sums(self, logs: Tensor) -> Tensor:
        """Return [B, N]: the log of the sum of exp(logs) over the classes at or below each node, for logs [B, K].

        With logs = log_softmax(logits), these are the log-probabilities of all nodes. Nothing underflows: each node
        subtracts its own largest value, so a node of probability 1e-300 has the log -690.8 and a gradient.
        """
        sums: Tensor = _SubtreeLogSums.apply(logs, self, -torch.inf)
        return sums

    def subtree_sums(self, values: Tensor) -> Tensor:
        """Return [B, N]: the sum over each node and all nodes below it, of values [B, N]."""
        sums: Tensor = _SubtreeSums.apply(values, self, None)
        return sums

    def subtree_log_sums(self, logs: Tensor) -> Tensor:
        """Return [B, N]: the log of the sum of exp(logs) over each node and all nodes below it, for logs [B, N].

        Nothing underflows, as in `leaf_log_sums`. A log may be -inf; it gets no gradient from the nodes above it.
        """
        sums: Tensor = _SubtreeLogSums.apply(logs, self, None)
        return sums

    def ancestor_sums(self, values: Tensor) -> Tensor:
        """Return [B, N]: the sum over each node and all nodes above it but the root, of values [B, N]; 0 for the root.

        Of `sibling_log_softmax` they are the log-probabilities of all nodes.
        """
        below = torch.cat([torch.zeros_like(values[..., :1]), values[..., 1:]], dim=-1)
        sums: Tensor = _AncestorSums.apply(below, self)
        return sums

    def path_sums(self, values: Tensor) -> Tensor:
        """Return [B, K]: the sum over the nodes of each class's path, the root left out, of values [B, N]."""
        return self.ancestor_sums(values)[..., self.num_inner :].contiguous()

    def expected_distances(self, probabilities: Tensor) -> Tensor:
        """Return [B, K]: the expected hierarchical distance of each class from the target, for probabilities [B, N].

        It begins with the distance of the root, and each node on the way to the class saves the difference from its
        parent's for the probability below it. Costs of siblings with equal probabilities are equal.
        """
        saved = (self.distance[self.parent] - self.distance).to(probabilities)  # 0 for the root
        return self.distance[0] - self.path_sums(probabilities * saved)

    def child_log_sums(self, logs: Tensor) -> Tensor:
        """Return [B, I]: the log of the sum of exp(logs) over the children of each inner node, for logs [B, N].

        Nothing underflows. A log may be -inf; it gets no gradient.
        """
        sums: Tensor = ChildLogSums.apply(logs, self.parent, self.num_inner)
        return sums

    def sibling_log_softmax(self, logits: Tensor) -> Tensor:
        """Return [B, N]: log-probabilities of each node among its siblings, 0 for the root, for logits [B, N].

        The root's logit is ignored. The sum over a path, see `path_sums`, is the class's log-probability.
        """
        among = self.child_log_sums(logits).index_select(-1, self.parent[1:])
        return torch.cat([torch.zeros_like(logits[..., :1]), logits[..., 1:] - among], dim=-1)

    def _rows(self, values: Tensor, fill: float | None = None) -> Tensor:
        """Return a copy [N, B] of values [B, N], its rows in the order of the depths.

        With `fill`, values are those of the classes, [B, K], and `fill` that of the inner nodes.
        """
        rows = _transposed(values.reshape(-1, values.shape[-1]))
        if fill is not None:
            leaves = rows
            rows = leaves.new_full((self.num_nodes, leaves.shape[1]), fill)
            if self.in_order:
                rows[self.num_inner :].copy_(leaves)
            else:
                rows.index_copy_(0, self.row_of[self.num_inner :], leaves)
            return rows
        if self.in_order:
            return rows.clone(memory_format=torch.contiguous_format)
        return rows.index_select(0, self.by_depth)

    def _values(self, rows: Tensor, like: Tensor, leaves: bool = False) -> Tensor:
        """Return [B, N], or [B, K] of the leaves, for rows [N, B]; the other dimensions are those of `like`."""
        first = self.num_inner if leaves else 0
        rows = rows[first:] if self.in_order else rows.index_select(0, self.row_of[first:])
        return rows.t().reshape(*like.shape[:-1], len(rows)).contiguous()

    def _blockwise(self, values: Tensor, fill: float | None, add: Callable[[Tensor], None]) -> Tensor:
        """Return [B, N]: values, as in `_rows`, after `add` has changed their rows in place, a block of B at a time."""
        flat = values.reshape(-1, values.shape[-1])
        sums = values.new_empty(len(flat), self.num_nodes)
        size = min(max(BLOCK // self.num_nodes, 32), 512) if values.device.type == "cpu" else max(len(flat), 1)
        for part, part_sums in zip(flat.split(size), sums.split(size), strict=True):
            rows = self._rows(part, fill)
            add(rows)
            if fill is not None and self.in_order:  # the classes have the values that they had
                part_sums[:, : self.num_inner].copy_(_transposed(rows[: self.num_inner]))
                part_sums[:, self.num_inner :].copy_(part)
            else:
                part_sums.copy_(_transposed(rows if self.in_order else rows.index_select(0, self.row_of)))
        return sums.view(*values.shape[:-1], self.num_nodes)

    def _edges(self, rows: Tensor) -> list[tuple[Tensor, Tensor, Tensor]]:
        """Return, per depth below the root, views of its parents' and its own rows, and the parent of each of these."""
        depths = rows.split(self.depth_sizes)
        return list(zip(depths, depths[1:], self.row_above.split(self.depth_sizes[1:]), strict=False))


def _transposed(values: Tensor) -> Tensor:
    """Return the transpose of a matrix; that of one row or column as a view that is copied at once, not in blocks."""
    return values.t() if min(values.shape) > 1 else values.reshape(values.shape[::-1])


class _SubtreeSums(torch.autograd.Function):
    """The transpose of `_AncestorSums`."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, nodes: Nodes, fill: float | None) -> Tensor:
        ctx.nodes = nodes
        ctx.first = 0 if fill is None else nodes.num_inner

        def add(rows: Tensor) -> None:
            for parents, children, parent in reversed(nodes._edges(rows)):
                if rows.is_cuda:  # index_add_ would add in an order that differs from call to call; this one sorts
                    parents.index_put_((parent,), children, accumulate=True)
                else:
                    parents.index_add_(0, parent, children)

        return nodes._blockwise(values, fill, add)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        return _AncestorSums.apply(grads[0], ctx.nodes)[..., ctx.first :], None, None


class _AncestorSums(torch.autograd.Function):
    """The root included; the transpose of `_SubtreeSums`."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, nodes: Nodes) -> Tensor:
        ctx.nodes = nodes

        def add(rows: Tensor) -> None:
            for parents, children, parent in nodes._edges(rows):
                children.add_(parents.index_select(0, parent))

        return nodes._blockwise(values, None, add)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return _SubtreeSums.apply(grads[0], ctx.nodes, None), None


class _SubtreeLogSums(torch.autograd.Function):
    """The gradient of a sum falls to the nodes below by their shares, edge by edge, and no share is larger than 1."""

    @staticmethod
    def forward(ctx: Any, logs: Tensor, nodes: Nodes, fill: float | None) -> Tensor:
        sums = nodes._rows(logs, fill)
        node_shares = torch.ones_like(sums)
        shares = torch.ones_like(sums)  # of a node in its own sum, and in its parent's
        steps = (nodes._edges(sums), node_shares.split(nodes.depth_sizes), shares.split(nodes.depth_sizes)[1:])
        are_empty = fill is not None and nodes.depth_sizes[-1] == nodes.num_nodes - nodes.num_inner  # no shallow leaf
        for (parents, children, parent), node_share, share in reversed(list(zip(*steps, strict=False))):
            add_log_sums(children, parent, parents, None if are_empty else node_share, share)
        ctx.nodes = nodes
        ctx.leaves = fill is not None
        ctx.save_for_backward(node_shares, shares)
        return nodes._values(sums, logs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        node_shares, shares = ctx.saved_tensors
        rows = ctx.nodes._rows(grads[0])
        steps = ctx.nodes._edges(rows), shares.split(ctx.nodes.depth_sizes)[1:]
        for (parents, children, parent), share in zip(*steps, strict=True):
            children.addcmul_(parents.index_select(0, parent), share)
        return ctx.nodes._values(rows.mul_(node_shares), grads[0], ctx.leaves), None, None
