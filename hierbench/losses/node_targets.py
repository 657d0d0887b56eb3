"""Targets of losses: classes, or any nodes of the tree where a loss has their probabilities.

Shapes: B batch, K classes, N nodes, L levels.
"""

from functools import lru_cache
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from hierbench.hierarchy.label_tree import Hierarchy
from hierbench.hierarchy.levels import nodes_on
from hierbench.hierarchy.nodes import Nodes
from hierbench.utils.errors import Argument, InputError

TargetsAre = Literal["classes", "nodes"]


class TargetPaths(NamedTuple):
    """The ways from the root to the targets of a batch.

    Attributes:
        nodes: of the tree, on the targets' device.
        node: [B] the target's node.
        some_class: [B] a class at or below the target: itself, where the target is a class.
        path: [B, L] the nodes from below the root to the target, filled with the target.
        on_path: [B, L] bool, False where `path` is filled.
    """

    nodes: Nodes
    node: Tensor
    some_class: Tensor
    path: Tensor
    on_path: Tensor

    @property
    def way(self) -> Tensor:
        """[B, L + 1] the path with the root before it."""
        return F.pad(self.path, (1, 0))


def target_paths(targets: Tensor, tree: Hierarchy, targets_are: TargetsAre = "classes") -> TargetPaths:
    """Return the ways to targets [B]: classes, or nodes as `Nodes` numbers them, 0 the root, N - K + k the class k."""
    nodes = nodes_on(tree, targets.device)
    if targets_are == "classes":
        return TargetPaths(nodes, nodes.num_inner + targets, targets, nodes.paths[targets], nodes.on_path[targets])
    if targets_are != "nodes":
        choice = Argument("targets_are", targets_are)
        raise InputError(f'{choice}: it must be "classes" or "nodes"', choice)
    some_class = nodes.some_class[targets]
    steps = torch.arange(nodes.paths.shape[1], device=targets.device)
    on_path = steps < nodes.depth[targets, None]
    path = torch.where(on_path, nodes.paths[some_class], targets[:, None])
    return TargetPaths(nodes, targets, some_class, path, on_path)


def check_batch(name: str, values: Tensor, width: int | None, targets: Tensor) -> None:
    """Raise an InputError unless a loss has values [B, width], of any width for None, and targets [B] from 0 up.

    A negative target would count from the last node back, and a target on a GPU is not looked at, as that would wait
    for the device.
    """
    size = tuple(values.shape)
    if values.ndim != 2 or width not in (None, size[1]):
        raise InputError(f"{name} takes [B, {'D' if width is None else width}] for this tree, not {list(size)}")
    if targets.is_floating_point() or targets.is_complex() or targets.shape != size[:1]:
        shape = f"{list(targets.shape)} of {str(targets.dtype).removeprefix('torch.')}"
        raise InputError(f"{name} takes targets [{size[0]}] of integers, one per row, not {shape}")
    if targets.device.type == "cpu" and bool((targets < 0).any()):
        raise InputError(f"{name} takes targets from 0 up, not {int(targets.min())}")


def refuse_nodes(name: str, targets_are: TargetsAre) -> None:
    """Raise an InputError for targets that are nodes, of a loss that has no probability of a node."""
    if targets_are != "classes":
        choice = Argument("targets_are", targets_are)
        raise InputError(f"{name} takes classes alone, as it has no probability of a node, not {choice}", choice)


@lru_cache(maxsize=8)
def class_columns(tree: Hierarchy, device: torch.device) -> Tensor:
    """Return [K, L] the column of each class's node at each level, the levels side by side, coarsest first."""
    sizes = torch.tensor([0, *tree.level_sizes[:-1]])
    return (torch.tensor(tree.level_targets) + sizes.cumsum(0)).to(device)  # a copy: it is not writable
