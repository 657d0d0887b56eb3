"""From the most probable class upwards until the probability suffices."""

from torch import Tensor

from hierbench.answers.rule import Rule
from hierbench.answers.rules.confidence_threshold import first_reaching
from hierbench.metrics.node_probabilities import NodeProbabilities


def climbing(given: NodeProbabilities, threshold: float) -> Tensor:
    """Return the lowest ancestor of the best class, or the class itself, of a probability >= threshold."""
    return first_reaching(*given.climb, threshold)


RULE = Rule(climbing, "Climbing", "Goren et al., NeurIPS 2024", fitted="threshold")
