"""Selective prediction on the tree: climbing from a class until the probability suffices; risk, coverage and hAURC.

Goren et al., "Hierarchical Selective Classification", NeurIPS 2024. Shapes: N examples, K classes, L levels,
T thresholds, R steps of a climb (L + 1, from the class to the root).

The climbing rule predicts the lowest ancestor of the top-ranked class, the class itself included, of probability at
least theta; the probability of a node is the sum over the classes below it, and the root's is 1. The selective rule
predicts the class or the root. Risk is the share of all examples whose node is neither the target nor above it: it is
not divided by the coverage. The coverage of a node is 1 - log2(classes below it) / log2(K): 1 for a class, 0 for the
root. Both are means over all examples.
"""

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from hierbench.hierarchy.label_tree import Hierarchy
from hierbench.hierarchy.levels import nodes_on
from hierbench.metrics.node_probabilities import chunks
from hierbench.metrics.paths import shared_nodes
from hierbench.metrics.ranked_classes import check_probabilities, known_targets

Rule = Literal["climbing", "selective"]


class OperatingCurve(NamedTuple):
    """Risk and coverage at each threshold, [T] float64 each; coverage falls as theta grows."""

    theta: Tensor
    risk: Tensor
    coverage: Tensor


def climb_probabilities(classes: Tensor, probabilities: Tensor, hierarchy: Hierarchy) -> Tensor:
    """Return the probability of each node that a climb from a class passes: [N, R], the class first, 1 at the end.

    The climb of a shallow class stands at the class until it leaves it. A sum that rounding makes smaller than that of
    the node below is raised to it, so that the row never falls.

    Args:
        classes: [N] where the climbs begin: the top-ranked classes.
        probabilities: [N, K].
        hierarchy: over the K classes.
    """
    check_probabilities(probabilities, hierarchy.num_classes)
    climb = torch.empty(len(classes), hierarchy.num_levels + 1, dtype=torch.float64, device=classes.device)
    for rows, chunk in chunks(probabilities, hierarchy, classes):
        climb[rows] = chunk.climb[0]
    return climb


def climb_steps(classes: Tensor, climb: Tensor, targets: Tensor, hierarchy: Hierarchy) -> Tensor:
    """Return the steps of every climb, [N, 3, R] float64: probability, 1 if the node is right, and its coverage.

    Args:
        classes: [N] top-ranked classes.
        climb: [N, R] of `climb_probabilities`.
        targets: [N] class indices.
        hierarchy: over the K classes.
    """
    nodes = nodes_on(hierarchy, classes.device)
    climbed = torch.cat([nodes.paths.flip(1), torch.zeros_like(nodes.paths[:, :1])], dim=1)[classes]
    shared = shared_nodes(classes, targets, hierarchy)
    right = (nodes.depth[climbed] <= shared[:, None]).double()
    coverage = 1.0 - nodes.num_leaves.double().log2()[climbed] / nodes.num_leaves[0].double().log2()
    return torch.stack([climb, right, coverage], dim=1)


def operating_curve(
    classes: Tensor,
    targets: Tensor,
    climb: Tensor,
    hierarchy: Hierarchy,
    rule: Rule = "climbing",
    thresholds: Tensor | None = None,
) -> OperatingCurve:
    """Return risk and coverage over thresholds.

    Args:
        classes: [N] top-ranked classes.
        targets: [N] class indices.
        climb: [N, R] of `climb_probabilities`.
        hierarchy: over the K classes.
        rule: "climbing", or "selective" for the class or the root.
        thresholds: [T] float64, ascending. By default all at which anything changes: 0, every probability on a climb
            once, and infinity, where everything is the root.

    Returns:
        theta, risk, coverage, [T] each.

    Raises:
        ValueError: no examples, or a target that is not a class.
    """
    targets = known_targets(targets.to(classes.device), hierarchy.num_classes)
    return curve_from_steps(climb_steps(classes, climb, targets, hierarchy), rule, thresholds)


def curve_from_steps(steps: Tensor, rule: Rule, thresholds: Tensor | None = None) -> OperatingCurve:
    """Return the operating curve of `climb_steps` [N, 3, R]; the other arguments are those of `operating_curve`."""
    climb, right, coverage = (steps if rule == "climbing" else steps[:, :, [0, -1]]).unbind(1)
    # A climb leaves step r as soon as theta exceeds its probability; the changes of all examples, sorted, add up.
    leaves_at, order = climb[:, :-1].flatten().sort()
    if thresholds is None:
        ends = leaves_at.new_tensor([0.0, 1.0, torch.inf])
        thresholds = torch.cat([ends[:1], leaves_at, ends[1:]]).unique_consecutive()
    thresholds = thresholds.to(leaves_at)
    num_left = torch.searchsorted(leaves_at, thresholds)
    gained = _before(right.diff(dim=1).flatten()[order], num_left)
    lost = _before(-coverage.diff(dim=1).flatten()[order], num_left)
    num = len(steps)
    risk = 1.0 - (right[:, 0].sum() + gained) / num
    return OperatingCurve(thresholds, risk, ((coverage[:, 0].sum() - lost) / num).clamp_min(0.0))


def _before(changes: Tensor, num: Tensor) -> Tensor:
    """Return the sums of the first `num` [T] of the changes."""
    return torch.cat([changes.new_zeros(1), changes.cumsum(0)])[num]


def area_under(curve: OperatingCurve) -> float:
    """Return hAURC: the area under risk over coverage, by trapezoids between the curve's points; smaller is better.

    The published code takes thresholds from all node probabilities, rounded to 4 decimals, or 2 where there are more
    than 100 classes. The default thresholds of `operating_curve` are exact instead, and their curve reaches coverage 0
    even where probabilities of 1 are left at the threshold 1; the two differ by 1e-5 to 1e-3. Give the rounded ones to
    `operating_curve` for the published form.
    """
    order = curve.coverage.sort(stable=True).indices
    return float(torch.trapezoid(curve.risk[order], curve.coverage[order]))


def area_of_steps(steps: Tensor, rule: Rule) -> float:
    """Return hAURC of `climb_steps` [N, 3, R] of all examples."""
    return area_under(curve_from_steps(steps, rule))
