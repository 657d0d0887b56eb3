"""The label tree, its readers, its levels, and sums over its nodes."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hierbench.hierarchy.label_tree import Distance, Hierarchy
    from hierbench.hierarchy.levels import (
        coarse_levels,
        distances_from,
        distances_on,
        level_log_softmax,
        node_parents,
    )
    from hierbench.hierarchy.nodes import Nodes

__all__ = [
    "Distance",
    "Hierarchy",
    "Nodes",
    "coarse_levels",
    "distances_from",
    "distances_on",
    "level_log_softmax",
    "node_parents",
]

# They load on first use: the command line reads the options of trees without NumPy, tables render without torch.
_HOME = {
    "Distance": "hierbench.hierarchy.label_tree",
    "Hierarchy": "hierbench.hierarchy.label_tree",
    "Nodes": "hierbench.hierarchy.nodes",
    "coarse_levels": "hierbench.hierarchy.levels",
    "distances_from": "hierbench.hierarchy.levels",
    "distances_on": "hierbench.hierarchy.levels",
    "level_log_softmax": "hierbench.hierarchy.levels",
    "node_parents": "hierbench.hierarchy.levels",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'hierbench.hierarchy' has no attribute {name!r}")
