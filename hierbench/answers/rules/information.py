"""Rules that weigh the probability of a node against its information: a bound on it, their product, and DARTS."""

import math

import torch
from torch import Tensor

from hierbench.answers.decision_rule import rule
from hierbench.hierarchy.label_tree import Hierarchy
from hierbench.metrics.node_probabilities import TIE, NodeProbabilities, best_column


def _bits_span(tree: Hierarchy, _: float) -> tuple[float, float]:
    return math.log2(tree.num_classes), 0.0


def _weight_span(tree: Hierarchy, accuracy: float) -> tuple[float, float]:
    return 0.0, math.log2(tree.num_classes) * accuracy / (1.0 - accuracy)


@rule("Information threshold", "Plaud et al., ICML 2025", fitted="bits", span=_bits_span)
def information_threshold(chunk: NodeProbabilities, bits: float) -> Tensor:
    """Return the most probable node of at least as many bits; a ValueError if not even a class has them."""
    probabilities, nodes = chunk.by_information
    enough = chunk.tables.information[nodes] >= bits - TIE
    if not bool(enough[:1].any()) and len(nodes):
        raise ValueError(f"bits must be at most {math.log2(chunk.hierarchy.num_classes):g}, those of a class")
    return _best(chunk, torch.where(enough, probabilities, -1.0))


@rule("Expected information", "Valmadre, NeurIPS 2022")
def expected_information(chunk: NodeProbabilities) -> Tensor:
    """Return the node of the largest probability times information; never the root."""
    return darts(chunk, 0.0)


@rule("DARTS", "Deng et al., CVPR 2012", fitted="weight", span=_weight_span)
def darts(chunk: NodeProbabilities, weight: float) -> Tensor:
    """Return the node of the largest probability times (information + weight): the root where the weight is large."""
    probabilities, nodes = chunk.by_information
    return _best(chunk, probabilities * (chunk.tables.information[nodes] + weight))


def _best(chunk: NodeProbabilities, scores: Tensor) -> Tensor:
    probabilities, nodes = chunk.by_information
    column = best_column(scores, probabilities, chunk.tables.order[nodes])
    return nodes.gather(1, column[:, None])[:, 0]
