"""From the root to the most probable child, until a class is reached."""

from torch import Tensor

from hierbench.answers.decision_rule import rule
from hierbench.metrics.node_probabilities import NodeProbabilities


@rule("Top-down", "Plaud et al., ICML 2025", abstains=False)
def top_down(chunk: NodeProbabilities) -> Tensor:
    """Return the class at the end of the descent; it need not be the most probable class."""
    path, _ = chunk.descent
    return path[:, -1]
