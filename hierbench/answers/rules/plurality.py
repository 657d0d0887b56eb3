"""The most specific node that is more probable than every node that loses against a sibling."""

from torch import Tensor

from hierbench.answers.decision_rule import rule
from hierbench.metrics.node_probabilities import TIE, NodeProbabilities


@rule("Plurality", "Valmadre, NeurIPS 2022")
def plurality(chunk: NodeProbabilities) -> Tensor:
    """Return the deepest node above the largest second-best sibling probability of the tree; the root if none is.

    That probability lies on the way down to the best children: all other nodes are below one that was passed by.
    """
    path, runner_up = chunk.descent
    above = chunk.nodes.gather(1, path) > runner_up[:, None] + TIE
    above[:, 0] = True
    return path.gather(1, above.sum(dim=1, keepdim=True) - 1)[:, 0]
