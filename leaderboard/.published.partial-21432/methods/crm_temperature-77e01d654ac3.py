"""Conditional risk minimisation of calibrated probabilities: the temperature that fits validation best, then CRM."""

from typing import Any

from torch import Tensor

from hierbench import Hierarchy, PostHoc
from hierbench.answers.temperature import fit_temperature
from hierbench.hierarchy import Nodes


class CalibratedCRM(PostHoc):
    """CRM on the softmax of log p / T, with the T of `fit_temperature` on the base's validation probabilities p."""

    name = "crm_temperature"
    title = "CRM, calibrated"
    source = "Karthik et al., ICLR 2021 (CRM); Guo et al., ICML 2017 (temperature scaling)"
    types = ("pooled", "type-I", "type-II")
    needs_validation = True

    def __init__(self, hierarchy: Hierarchy, params: Any = None) -> None:
        super().__init__(hierarchy, params)
        self.nodes = Nodes(hierarchy)
        self.temperature = 1.0

    def fit(self, probabilities: Tensor, *, targets: Tensor) -> None:
        """Fit the temperature to probabilities [N, K] and targets [N] of the validation split."""
        self.temperature = fit_temperature(probabilities.log(), targets)

    def rescore(self, probabilities: Tensor) -> Tensor:
        """Return minus the expected distance [N, K] under the calibrated probabilities [N, K]."""
        nodes = self.nodes.to(probabilities.device)  # kept there for the next chunk
        calibrated = (probabilities.log() / self.temperature).softmax(dim=1)
        return -nodes.expected_distances(nodes.leaf_sums(calibrated))
