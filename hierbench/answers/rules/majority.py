"""The deepest node that is more probable than not.

It has the least expected number of edges to the target, and the least Hamming loss over sets of nodes: those above one
half form a path.
"""

import torch
from torch import Tensor

from hierbench.answers.decision_rule import rule
from hierbench.metrics.node_probabilities import TIE, NodeProbabilities


@rule("Majority", "Valmadre, NeurIPS 2022")
def majority(chunk: NodeProbabilities) -> Tensor:
    """Return the deepest node of a probability above 1/2: the last of an only child's chain."""
    likely = chunk.nodes > 0.5 + TIE
    likely[:, 0] = True
    return torch.where(likely, chunk.tables.nodes.depth, -1).argmax(dim=1)
