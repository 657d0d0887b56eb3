"""From the root to the most probable child, until a class is reached."""

from torch import Tensor

from hierbench.answers.rule import Rule
from hierbench.metrics.node_probabilities import NodeProbabilities


def top_down(given: NodeProbabilities) -> Tensor:
    """Return the class at the end of the descent; it need not be the most probable class."""
    path, _ = given.descent
    return path[:, -1]


RULE = Rule(top_down, "Top-down", "Plaud et al., ICML 2025", abstains=False)
