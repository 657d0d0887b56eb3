"""The most probable class: what every flat classifier answers."""

from torch import Tensor

from hierbench.answers.decision_rule import rule
from hierbench.metrics.node_probabilities import NodeProbabilities


@rule("Best class", "argmax of p", abstains=False)
def argmax_leaf(chunk: NodeProbabilities) -> Tensor:
    """Return the class of the largest probability; ties go to the lower class index."""
    return chunk.tables.nodes.num_inner + chunk.top
