"""The real nodes of a tree as index tensors, and numerically safe sums along its paths, for methods and metrics.

Shapes: B examples (any leading dimensions), K classes, N nodes with the root, I = N - K inner nodes, L levels, and E
pairs of a class and a node on its path. Nodes are numbered from the root, 0, over the other inner nodes, coarsest level
first and in the order of `Hierarchy.level_targets` within it, to the K classes in target order, I to N - 1. So a parent
has a smaller number than its children, and relabelling the classes moves only the last K. A leaf above the deepest
level is one node here, not one per level.
"""

import numpy as np
import torch
from torch import Tensor, nn

from hierbench.hierarchy.tree import Hierarchy


class Nodes(nn.Module):
    """Index tensors of a tree, which move with the method that they are part of and are not in its checkpoint.

    Attributes:
        num_nodes: N.
        num_inner: I; a class y is the node I + y.
        parent: [N] int64, 0 for the root itself.
        depth: [N] int64, edges from the root.
        height: [N] int64, edges down to the deepest leaf below.
        num_leaves: [N] int64, classes at or below a node.
        paths: [K, L] int64, the nodes of a class's path from below the root to the class itself, filled with the class.
        on_path: [K, L] bool, False where `paths` is filled.
        levels: [M] int64, the node of each entry of the levels, coarsest level first, as `Hierarchy.level_sizes` counts
            them; a shallow leaf occurs once per level.
    """

    parent: Tensor
    depth: Tensor
    height: Tensor
    num_leaves: Tensor
    paths: Tensor
    on_path: Tensor
    levels: Tensor
    path_leaf: Tensor
    path_node: Tensor

    def __init__(self, hierarchy: Hierarchy) -> None:
        super().__init__()
        targets, num_classes = hierarchy.level_targets, hierarchy.num_classes
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

        parent, depth = np.zeros(self.num_nodes, dtype=np.int64), np.zeros(self.num_nodes, dtype=np.int64)
        height = np.zeros(self.num_nodes, dtype=np.int64)
        above = np.concatenate([np.zeros((num_classes, 1), dtype=np.int64), paths[:, :-1]], axis=1)
        parent[paths[on_path]] = above[on_path]
        of_class = np.broadcast_to(np.arange(num_classes)[:, None], paths.shape)
        at_depth = np.broadcast_to(1 + np.arange(hierarchy.num_levels), paths.shape)
        depth[paths[on_path]] = at_depth[on_path]
        np.maximum.at(height, paths[on_path], (class_depth[:, None] - at_depth)[on_path])
        height[0] = hierarchy.height
        num_leaves = np.bincount(paths[on_path], minlength=self.num_nodes)
        num_leaves[0] = num_classes

        # The pairs of a class and a node on its path, the root included, in the order of the nodes.
        nodes, leaves = paths[on_path], of_class[on_path]
        order = np.argsort(nodes, kind="stable")
        tables = {
            "parent": parent,
            "depth": depth,
            "height": height,
            "num_leaves": num_leaves,
            "paths": paths,
            "on_path": on_path,
            "levels": np.concatenate(levels),
            "path_node": np.concatenate([np.zeros(num_classes, dtype=np.int64), nodes[order]]),
            "path_leaf": np.concatenate([np.arange(num_classes), leaves[order]]),
        }
        for name, table in tables.items():
            self.register_buffer(name, torch.from_numpy(np.ascontiguousarray(table)), persistent=False)

    def leaf_sums(self, values: Tensor) -> Tensor:
        """Return [B, N]: the sum over the classes at or below each node of values [B, K]; the root's is the total."""
        return _sum_into(values.index_select(-1, self.path_leaf), self.path_node, self.num_nodes)

    def leaf_log_sums(self, logs: Tensor) -> Tensor:
        """Return [B, N]: the log of the sum of exp(logs) over the classes at or below each node, for logs [B, K].

        With logs = log_softmax(logits), these are the log-probabilities of all nodes. Nothing underflows: each node
        subtracts its own largest value, so a node of probability 1e-300 has the log -690.8 and a gradient.
        """
        return _log_sum_into(logs.index_select(-1, self.path_leaf), self.path_node, self.num_nodes)

    def path_sums(self, values: Tensor) -> Tensor:
        """Return [B, K]: the sum over the nodes of each class's path, the root left out, of values [B, N]."""
        below = slice(self.on_path.shape[0], None)  # the first K pairs are those of the root
        return _sum_into(values.index_select(-1, self.path_node[below]), self.path_leaf[below], len(self.on_path))

    def sibling_log_softmax(self, logits: Tensor) -> Tensor:
        """Return [B, N]: log-probabilities of each node among its siblings, 0 for the root, for logits [B, N].

        The root's logit is ignored. The sum over a path, see `path_sums`, is the class's log-probability.
        """
        below, parent = logits[..., 1:], self.parent[1:]
        among = _log_sum_into(below, parent, self.num_inner)
        return torch.cat([torch.zeros_like(logits[..., :1]), below - among.index_select(-1, parent)], dim=-1)


def _sum_into(values: Tensor, index: Tensor, size: int) -> Tensor:
    """Return [B, size]: values [B, E] summed by index [E]."""
    return values.new_zeros(*values.shape[:-1], size).scatter_add(-1, index.expand_as(values), values)


def _log_sum_into(logs: Tensor, index: Tensor, size: int) -> Tensor:
    """Return [B, size]: the log of exp(logs) [B, E] summed by index [E], in which every number up to `size` occurs."""
    index = index.expand_as(logs)
    lowest = logs.new_full((*logs.shape[:-1], size), -torch.inf)
    largest = lowest.scatter_reduce(-1, index, logs.detach(), "amax")
    sums = torch.zeros_like(largest).scatter_add(-1, index, (logs - largest.gather(-1, index)).exp())
    return largest + sums.log()
