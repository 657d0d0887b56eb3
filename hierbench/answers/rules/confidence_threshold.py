"""The most informative node of at least a probability."""

import torch
from torch import Tensor

from hierbench.answers.decision_rule import rule
from hierbench.metrics.node_probabilities import TIE, NodeProbabilities


def first_reaching(probabilities: Tensor, nodes: Tensor, threshold: float) -> Tensor:
    """Return the first node [B] of a row of candidates [B, S] whose probability reaches a threshold; else the last."""
    reached = probabilities >= threshold - TIE
    reached[:, -1] = True
    return nodes.gather(1, reached.to(torch.uint8).argmax(dim=1, keepdim=True))[:, 0]


@rule("Threshold", "Valmadre, NeurIPS 2022; MaxCoverage of Goren et al., 2024", fitted="threshold")
def confidence_threshold(chunk: NodeProbabilities, threshold: float) -> Tensor:
    """Return the most informative node of a probability >= threshold; ties go to the more probable node."""
    return first_reaching(*chunk.by_information, threshold)
