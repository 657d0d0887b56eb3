"""The path of the top-ranked class against the target's: hierarchical precision, recall and F, and severity in bits.

Shapes: N examples, K classes, L levels. A path is the set of nodes from below the root down to a class: real nodes, so
that a leaf above the deepest level counts once.
"""

import torch
from torch import Tensor

from hierbench.hierarchy.label_tree import Hierarchy
from hierbench.hierarchy.levels import class_distances, nodes_on

SCORES = ("hp_micro", "hr_micro", "hf_micro", "hp_macro", "hr_macro", "hf_macro")


def shared_nodes(classes: Tensor, targets: Tensor, hierarchy: Hierarchy) -> Tensor:
    """Return how many nodes the paths of classes [N] and targets [N] share, [N]: the depth of their LCA."""
    nodes = nodes_on(hierarchy, classes.device)
    same = (nodes.paths[classes] == nodes.paths[targets]) & nodes.on_path[classes] & nodes.on_path[targets]
    return same.sum(dim=1)


def path_counts(classes: Tensor, targets: Tensor, hierarchy: Hierarchy) -> Tensor:
    """Return each example's contribution to the sums of hierarchical precision, recall and F.

    Args:
        classes: [N] predicted classes.
        targets: [N] class indices.
        hierarchy: over the K classes.

    Returns:
        [N, 6] float64: the nodes that the paths share, those on the prediction's, those on the target's; then shared by
        predicted, shared by true, and shared by the mean of the two.
    """
    length = nodes_on(hierarchy, classes.device).on_path.sum(dim=1).double()
    shared = shared_nodes(classes, targets, hierarchy).double()
    predicted = length[classes]
    true = length[targets]
    fractions = (shared / predicted, shared / true, 2.0 * shared / (predicted + true))
    return torch.stack([shared, predicted, true, *fractions], dim=1)


def hierarchical_score(sums: Tensor, name: str) -> Tensor:
    """Return hierarchical precision, recall or F in per cent from the examples and their `path_counts`.

    Micro divides sums over examples, macro is the mean over examples, of F too. The root is on no path: it is in every
    prediction and would raise all values. Kiritchenko et al., Canadian AI 2006; with the names micro and macro,
    Kosmopoulos et al., Data Mining and Knowledge Discovery 2015.

    Args:
        sums: [7], the number of examples first.
        name: one of `SCORES`.
    """
    examples, shared, predicted, true, *fractions = sums
    micro = (shared / predicted, shared / true, 2.0 * shared / (predicted + true))
    scores: list[Tensor] = [*micro, *(total / examples for total in fractions)]
    return 100.0 * scores[SCORES.index(name)]


def leaves_below_lca(classes: Tensor, targets: Tensor, hierarchy: Hierarchy) -> Tensor:
    """Return the number of classes below the LCA of classes [N] and targets [N], [N] int64; 1 where they agree."""
    nodes = nodes_on(hierarchy, classes.device)
    shared = shared_nodes(classes, targets, hierarchy)
    lowest = nodes.paths[targets, (shared - 1).clamp_min(0)]
    return nodes.num_leaves[torch.where(shared > 0, lowest, 0)]


def bit_counts(classes: Tensor, targets: Tensor, hierarchy: Hierarchy) -> Tensor:
    """Return each example's contribution to the sums of information severity: [N, 2] float64, 1 and its bits if wrong.

    The bits of a mistake are log2(classes below the LCA): how much is still to be told about the class once the LCA is
    known, if all classes are equally frequent. Valmadre, NeurIPS 2022, whose information of a node is
    log2(K / classes below it).
    """
    bits = leaves_below_lca(classes, targets, hierarchy).double().log2()  # 0 where they agree
    return torch.stack([(classes != targets).double(), bits], dim=1)


def min_distance_counts(classes: Tensor, targets: Tensor, hierarchy: Hierarchy) -> Tensor:
    """Return the smallest distance from targets [N] among ranked classes [N, k], [N, 1]."""
    return class_distances(classes, targets, hierarchy).amin(dim=1, keepdim=True)
