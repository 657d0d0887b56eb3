"""The label tree, its readers and its levels."""

from hierbench.hierarchy.tree import Distance, Hierarchy

__all__ = ["Distance", "Hierarchy"]
