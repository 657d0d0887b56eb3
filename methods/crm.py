"""Conditional risk minimisation: rank classes by the hierarchical distance to expect of them."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from hierbench import Hierarchy, PostHoc


class CRM(PostHoc):
    """Amend a trained classifier's probabilities at test time: cost of class j = sum_i p_i d_ij.

    Nothing is trained; the base is the cross-entropy model. Shapes: N examples, K classes, V inner nodes.

    In a tree, d_ij = height - sum of drop(v) over the nodes v above both i and j, where drop(v) is how much closer two
    classes are whose lowest common ancestor is v rather than v's parent. So the [K, K] product splits into one with
    the [K, V] ancestor matrix and one with its transpose: fewer operations (V < K), and two siblings differ by
    nothing but their own probability, so that equal probabilities tie exactly.
    """

    name = "crm"
    title = "CRM"
    source = "Karthik et al., No Cost Likelihood Manipulation at Test Time, ICLR 2021: argmin of the expected cost P C"
    base = "ce"

    def __init__(self, hierarchy: Hierarchy, params: Any = None) -> None:
        super().__init__(hierarchy, params)
        self.height = hierarchy.height
        above = np.full(hierarchy.num_classes, hierarchy.height)  # [K], distance at the class's node one level up
        is_ancestor, drops = [], []
        for targets, distances in zip(hierarchy.level_targets.T, hierarchy.node_distances, strict=True):
            inner = np.flatnonzero(distances)
            drop = np.zeros(len(distances))
            drop[targets] = above - distances[targets]
            is_ancestor.append(targets[:, None] == inner)
            drops.append(drop[inner])
            above = np.where(distances[targets] > 0, distances[targets], above)
        self.is_ancestor = torch.from_numpy(np.concatenate(is_ancestor, axis=1)).float()  # [K, V]
        self.drops = torch.from_numpy(np.concatenate(drops))  # [V]
        self.own_drop = torch.from_numpy(above)  # [K], from the lowest inner node above a class to the class itself

    def rescore(self, probabilities: Tensor) -> Tensor:
        """Return minus the expected distance [N, K] under probabilities [N, K], in their precision."""
        is_ancestor = self.is_ancestor.to(probabilities)
        mass = (probabilities @ is_ancestor) * self.drops.to(probabilities)
        closeness = torch.addcmul(mass @ is_ancestor.T, probabilities, self.own_drop.to(probabilities))
        return closeness - self.height * probabilities.sum(dim=1, keepdim=True)
