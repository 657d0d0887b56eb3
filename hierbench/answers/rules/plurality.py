"""The most specific node that is more probable than every node that loses against a sibling."""

from torch import Tensor

from hierbench.answers.rule import Rule
from hierbench.metrics.node_probabilities import TIE, NodeProbabilities


def plurality(given: NodeProbabilities) -> Tensor:
    """Return the deepest node above the largest second-best sibling probability of the tree; the root if none is.

    That probability lies on the way down to the best children: all other nodes are below one that was passed by.
    """
    path, runner_up = given.descent
    above = given.nodes.gather(1, path) > runner_up[:, None] + TIE
    above[:, 0] = True
    return path.gather(1, above.sum(dim=1, keepdim=True) - 1)[:, 0]


RULE = Rule(plurality, "Plurality", "Valmadre, NeurIPS 2022")
