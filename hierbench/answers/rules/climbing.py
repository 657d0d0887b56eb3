"""From the most probable class upwards until the probability suffices."""

from torch import Tensor

from hierbench.answers.decision_rule import rule
from hierbench.answers.rules.confidence_threshold import first_reaching
from hierbench.metrics.node_probabilities import NodeProbabilities


@rule("Climbing", "Goren et al., NeurIPS 2024", fitted="threshold")
def climbing(chunk: NodeProbabilities, threshold: float) -> Tensor:
    """Return the lowest ancestor of the best class, or the class itself, of a probability >= threshold."""
    return first_reaching(*chunk.climb, threshold)
