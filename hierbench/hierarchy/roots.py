"""Roots R, R R^T = S, of matrices that are a function of hierarchical distances, without a factorisation of trees'.

Shapes: K classes, M columns, C clusters of classes.
"""

from typing import Any, NamedTuple, Self

import numpy as np
import scipy.linalg
import torch
from numpy.typing import NDArray

from hierbench.hierarchy.label_tree import Hierarchy

Array = NDArray[Any]
Matrix = NDArray[np.float64]
ROOT_COLUMNS = 1024  # at a time
ROOT_ROWS = 128  # likewise; PyTorch adds up rows by index fast only where these are contiguous


class Merge(NamedTuple):
    """A distance at which clusters merge, and the number of the new cluster of each; at first, each class is one."""

    distance: float
    cluster: NDArray[np.intp]


def merges_of(distances: Array) -> list[Merge] | None:
    """Return the merges of the tree with these distances [K, K], the root last; None if they are not of a tree."""
    merges: list[Merge] = []
    if distances.diagonal().any():
        return None
    while len(distances) > 1:
        apart = distances.copy()
        np.fill_diagonal(apart, apart.max())
        nearest = apart.min()
        np.fill_diagonal(apart, nearest)
        first = (apart == nearest).argmax(axis=1)  # of each cluster
        kept, cluster = np.unique(first, return_inverse=True)
        if not nearest > 0 or len(kept) == len(first):
            return None
        if (apart != apart[first]).any() or (apart[kept] != apart[np.ix_(kept, first)]).any():
            return None  # a class is not as far from others as the first of its cluster is
        merges.append(Merge(float(nearest), cluster))
        distances = distances[np.ix_(kept, kept)]
    return merges


def merges_of_tree(hierarchy: Hierarchy) -> list[Merge]:
    """Return what `merges_of` returns for the distances of a tree, without them."""
    num_classes = hierarchy.num_classes
    values = np.unique(np.concatenate([*hierarchy.node_distances, [hierarchy.height]]))
    merges: list[Merge] = []
    clusters = np.arange(num_classes)  # the first class of each
    for value in values[values > 0]:
        first = np.zeros(num_classes, dtype=np.int64)  # all below the root
        if value < hierarchy.height:
            apart = np.ones(num_classes, dtype=bool)  # not yet below a node of at most this distance
            for nodes, distance in zip(hierarchy.level_targets.T, hierarchy.node_distances, strict=True):
                reached = apart & (distance[nodes] <= value)
                first_of = np.full(len(distance), num_classes)
                np.minimum.at(first_of, nodes[reached], np.flatnonzero(reached))
                first[reached] = first_of[nodes[reached]]
                apart &= ~reached
        kept, cluster = np.unique(first[clusters], return_inverse=True)
        if len(kept) < len(clusters):
            merges.append(Merge(float(value), cluster))
            clusters = kept
    return merges


class TreeRoot:
    """A root R, R R^T = S, of cosines S that are a function of the distances of a tree, kept as O(K) numbers.

    S is a sum of c 1 1^T over the clusters, with 1 on a cluster's classes. Let R' be the root of the terms inside a
    cluster, u = R'^-1 1 and q = u^T u. With the cluster's own term, growth = sqrt(1 + c q), b = (growth - 1) / q, the
    root is R' + b 1 u^T, and R^-1 1 is u / growth. So each u is put together from those inside, times a number.

    Attributes:
        q: 1^T S^-1 1, infinite where S is singular.
    """

    def __init__(self, merges: list[Merge], cosines: Matrix) -> None:
        """Take the cosines at the distance 0 and at those of the merges."""
        self.merges = merges
        self.cosines = cosines
        terms = cosines - np.append(cosines[1:], 0.0)
        q = np.full(len(merges[0].cluster), 1.0 / terms[0])
        self.scale = float(np.sqrt(terms[0]))
        self.steps: list[tuple[Array, Matrix, Matrix]] = []  # the new cluster of each; growth [C, 1] and b [C, 1]
        for (_, cluster), term in zip(merges, terms[1:], strict=True):
            inside = np.bincount(cluster, weights=q)
            growth = np.sqrt(np.maximum(0.0, 1.0 + term * inside))
            self.steps.append((cluster, growth[:, None], ((growth - 1.0) / inside)[:, None]))
            with np.errstate(divide="ignore"):
                q = inside / growth**2
        self.q = float(q[0])

    def raised_to(self, s_min: float) -> Self:
        """Return the root of (1 - s_min) S + s_min."""
        return type(self)(self.merges, (1.0 - s_min) * self.cosines + s_min)

    def apply_(self, rows: Array) -> None:
        """Replace rows [K, M] by R rows: O(N M) operations for N clusters, O(K ROOT_COLUMNS) memory."""
        for part in torch.from_numpy(rows).split(ROOT_COLUMNS, dim=1):
            inner = part.contiguous()
            added = []
            scale = self.scale  # u^T rows of each cluster, times the scale
            for cluster, growth, b in self.steps:
                index = torch.from_numpy(cluster)
                inner = inner.new_zeros(len(b), inner.shape[1]).index_add_(0, index, inner).div_(scale)
                added.append((index, inner * torch.from_numpy(b).to(inner)))
                inner = inner / torch.from_numpy(growth).to(inner)
                scale = 1.0  # unused at the root, which may have 0
            total = torch.zeros_like(inner)
            for index, node in reversed(added[1:]):
                total = (total + node).index_select(0, index)
            first, node = added[0]
            total = total + node
            for some, index in zip(part.split(ROOT_ROWS), first.split(ROOT_ROWS), strict=True):
                torch.add(total.index_select(0, index), some, alpha=self.scale, out=some)


class DenseRoot:
    """The same for any positive definite S, by its Cholesky factor [K, K]; scipy's LinAlgError if S is not."""

    def __init__(self, similarity: Matrix) -> None:
        self.root = scipy.linalg.cholesky(similarity, lower=True, check_finite=False)
        self.u = scipy.linalg.solve_triangular(self.root, np.ones(len(self.root)), lower=True, check_finite=False)
        self.q = float(self.u @ self.u)

    def raised_to(self, s_min: float) -> Self:
        """Return the root of (1 - s_min) S + s_min, in the memory of this one."""
        growth = np.sqrt(max(0.0, 1.0 + s_min / (1.0 - s_min) * self.q))
        self.root += (growth - 1.0) / self.q * self.u
        self.root *= np.sqrt(1.0 - s_min)
        return self

    def apply_(self, rows: Array) -> None:
        """Replace rows [K, M] by R rows: 2 K^2 M operations."""
        rows[:] = self.root @ rows
