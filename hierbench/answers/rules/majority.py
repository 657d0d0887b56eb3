"""The deepest node that is more probable than not.

It has the least expected number of edges to the target, and the least Hamming loss over sets of nodes: those above one
half form a path.
"""

import torch
from torch import Tensor

from hierbench.answers.rule import Rule
from hierbench.metrics.node_probabilities import TIE, NodeProbabilities


def majority(given: NodeProbabilities) -> Tensor:
    """Return the deepest node of a probability above 1/2: the last of an only child's chain."""
    likely = given.nodes > 0.5 + TIE
    likely[:, 0] = True
    return torch.where(likely, given.tables.nodes.depth, -1).argmax(dim=1)


RULE = Rule(majority, "Majority", "Valmadre, NeurIPS 2022")
