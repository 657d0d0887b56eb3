"""CIFAR-100 for a small network: the same images, splits and tree under the name of another recipe."""

from hierbench.data.datasets.cifar100 import open_source

__all__ = ["open_source"]
