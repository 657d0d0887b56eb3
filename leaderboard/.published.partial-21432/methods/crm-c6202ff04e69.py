"""Conditional risk minimisation: rank classes by their expected hierarchical distance."""

from typing import Any

from torch import Tensor

from hierbench import Hierarchy, PostHoc
from hierbench.hierarchy import Nodes


class CRM(PostHoc):
    """Re-rank a trained classifier's classes at test time by their expected cost: cost_j = sum_i p_i d_ij.

    The base is the cross-entropy model. Shapes: N examples, K classes.

    In a tree the costs are sums over ancestors, see `Nodes.expected_distances`: as many operations as there are nodes,
    and no matrix [K, K]. Costs of siblings differ only by their own probabilities, so equal probabilities tie exactly.
    """

    name = "crm"
    title = "CRM"
    source = "Karthik et al., No Cost Likelihood Manipulation at Test Time, ICLR 2021: argmin of the expected cost P C"
    base = "ce"

    def __init__(self, hierarchy: Hierarchy, params: Any = None) -> None:
        super().__init__(hierarchy, params)
        self.nodes = Nodes(hierarchy)

    def rescore(self, probabilities: Tensor) -> Tensor:
        """Return minus the expected distance [N, K] under probabilities [N, K], in their precision, on their device."""
        nodes = self.nodes.to(probabilities.device)  # kept there for the next chunk
        return -nodes.expected_distances(nodes.leaf_sums(probabilities))
