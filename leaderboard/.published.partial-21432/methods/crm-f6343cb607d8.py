"""Conditional risk minimisation: rank classes by their expected hierarchical distance."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from hierbench import Hierarchy, PostHoc


class CRM(PostHoc):
    """Re-rank a trained classifier's classes at test time by their expected cost: cost_j = sum_i p_i d_ij.

    The base is the cross-entropy model. Shapes: N examples, K classes, P parents of classes.

    In a tree the distance of two classes follows from their parents u and v: D_uv, and D_uu for two children of u. So
    the probabilities are summed per parent, and cost_j = sum_v mass_v D_uv - p_j D_uu for a class below u, because its
    distance to itself is 0. This takes fewer operations (P < K), and the costs of siblings differ only by their own
    probabilities, so equal probabilities tie exactly.
    """

    name = "crm"
    title = "CRM"
    source = "Karthik et al., No Cost Likelihood Manipulation at Test Time, ICLR 2021: argmin of the expected cost P C"
    base = "ce"

    def __init__(self, hierarchy: Hierarchy, params: Any = None) -> None:
        super().__init__(hierarchy, params)
        parent = np.full(hierarchy.num_classes, -1)  # [K], the lowest inner node above each class; -1 is the root
        own = np.full(hierarchy.num_classes, hierarchy.height)  # [K], distance of two classes whose parent is that node
        for level, (nodes, distances) in enumerate(
            zip(hierarchy.level_targets.T, hierarchy.node_distances, strict=True)
        ):
            inner = distances[nodes] > 0
            parent = np.where(inner, level * hierarchy.num_classes + nodes, parent)
            own = np.where(inner, distances[nodes], own)
        _, some_child, parent = np.unique(parent, return_index=True, return_inverse=True)
        between = hierarchy.distances[np.ix_(some_child, some_child)].copy()
        np.fill_diagonal(between, own[some_child])
        self.parent = torch.from_numpy(parent)  # [K]
        self.is_parent = torch.nn.functional.one_hot(self.parent).double()  # [K, P]
        self.between = torch.from_numpy(between).double()  # [P, P], D
        self.own = torch.from_numpy(own).double()  # [K], D_uu of the class's parent u

    def rescore(self, probabilities: Tensor) -> Tensor:
        """Return minus the expected distance [N, K] under probabilities [N, K], in their precision, on their device."""
        self.parent = self.parent.to(probabilities.device)  # kept there for the next chunk; the numbers stay exact
        self.is_parent, self.between = self.is_parent.to(probabilities), self.between.to(probabilities)
        self.own = self.own.to(probabilities)
        costs = (probabilities @ self.is_parent) @ self.between  # [N, P]
        return (probabilities * self.own).sub_(costs.index_select(1, self.parent))
