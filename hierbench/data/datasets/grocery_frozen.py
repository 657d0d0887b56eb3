"""Grocery Store for frozen backbones: the same images, splits and tree under the name of another recipe."""

from hierbench.data.datasets.grocery import open_source

__all__ = ["open_source"]
