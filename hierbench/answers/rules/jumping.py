"""From the finest level upwards, the most probable node of each, until its probability suffices."""

import torch
from torch import Tensor

from hierbench.answers.decision_rule import rule
from hierbench.answers.rules.confidence_threshold import first_reaching
from hierbench.metrics.node_probabilities import NodeProbabilities


@rule("Jumping", "Goren et al., NeurIPS 2024", fitted="threshold")
def jumping(chunk: NodeProbabilities, threshold: float) -> Tensor:
    """Return the best node of the finest level on which one has a probability >= threshold; the root if none has.

    The nodes of different levels need not lie on one path. A class above the finest level stands in below itself.
    """
    probabilities, _, nodes = chunk.by_level
    upwards = torch.cat([probabilities.flip(1), torch.ones_like(probabilities[:, :1])], dim=1)
    return first_reaching(upwards, torch.cat([nodes.flip(1), torch.zeros_like(nodes[:, :1])], dim=1), threshold)
