"""The most probable class: what every flat classifier answers."""

from torch import Tensor

from hierbench.answers.rule import Rule
from hierbench.metrics.node_probabilities import NodeProbabilities


def argmax_leaf(given: NodeProbabilities) -> Tensor:
    """Return the class of the largest probability; ties go to the lower class index."""
    return given.tables.nodes.num_inner + given.top


RULE = Rule(argmax_leaf, "Best class", "argmax of p", abstains=False)
