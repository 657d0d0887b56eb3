"""Split conformal sets: sets of classes, or of few nodes, that hold the target with a stated probability.

The scores of n calibration examples, which neither training nor a temperature has seen, are sorted; a class is in the
set of a new example if its score is at most the k-th of them, k = ceil((n + 1) (1 - alpha)). Then the target is in the
set with a probability of at least 1 - alpha, over examples and calibration sets (Vovk et al., 2005).

Shapes: N examples, n calibration examples, K classes, L levels, m nodes of an answer.
"""

import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy.special import betaln
from torch import Tensor

from hierbench.answers.decision_rule import as_table, checked_chunks
from hierbench.answers.node_covers import cover_scores, covered_classes
from hierbench.hierarchy.label_tree import Hierarchy
from hierbench.metrics.node_probabilities import node_tables
from hierbench.metrics.ranked_classes import as_tensor, known_targets

Score = Literal["lac", "aps", "raps", "nodes"]
SLACK = 1e-12  # of a score, which is a sum of probabilities


@dataclass(frozen=True)
class SetScore:
    """How unusual a class is for an example: the smaller the score, the earlier it enters the set.

    Attributes:
        kind: "lac", 1 - p(y) (Sadinle et al., JASA 2019); "aps", the sum of p over the classes that are at least as
            probable (Romano et al., NeurIPS 2020); "raps", the same plus a penalty for each class beyond the first few
            (Angelopoulos et al., ICLR 2021); "nodes", the probability of the smallest set of classes below at most m
            nodes that holds all classes at least as probable (Mortier et al., 2025), its running maximum.
        nodes: m, of "nodes".
        penalty: of "raps" for each class beyond the first `num_free`.
        num_free: of "raps".
        randomized: "aps" and "raps" less a random share of p(y), which makes the sets smaller and coverage exact.
    """

    kind: Score = "lac"
    nodes: int = 1
    penalty: float = 0.01
    num_free: int = 5
    randomized: bool = False

    def __post_init__(self) -> None:
        if self.kind not in get_args(Score):
            raise ValueError(f"score must be one of {', '.join(get_args(Score))}, got {self.kind!r}")
        if self.nodes < 1:
            raise ValueError(f"nodes must be at least 1, got {self.nodes}")


def conformal_sets(
    calibration_probabilities: Tensor | ArrayLike,
    calibration_targets: Tensor | ArrayLike,
    probabilities: Tensor | ArrayLike,
    hierarchy: Hierarchy,
    alpha: float,
    score: Score = "lac",
    nodes: int = 1,
    seed: int = 0,
    *,
    penalty: float = 0.01,
    num_free: int = 5,
    randomized: bool = False,
    group_level: int | None = None,
) -> Any:
    """Return for each example the set of classes that holds its target with a probability of at least 1 - alpha.

    Args:
        calibration_probabilities: [n, K].
        calibration_targets: [n] class indices.
        probabilities: [N, K].
        hierarchy: over the K classes.
        alpha: between 0 and 1.
        score: see `SetScore`.
        nodes: of "nodes", the most that a set is made of.
        seed: of the random shares; without `randomized` nothing is random.
        penalty: of "raps".
        num_free: of "raps".
        randomized: of "aps" and "raps".
        group_level: of the tree, 1 the coarsest: the guarantee then holds for each node of it by itself (Mondrian),
            with a quantile per node, infinite where it has too few calibration examples.

    Returns:
        [N, K] bool. A set of "lac" may be empty.

    Raises:
        ValueError: no probabilities, a target that is no class, an alpha out of range, no such score or level.
    """
    kind = SetScore(score, nodes, penalty, num_free, randomized)
    if not 0.0 < alpha < 1.0:
        raise ValueError(f"alpha must be between 0 and 1, got {alpha}")
    calibration = as_table(calibration_probabilities, hierarchy)
    new = as_table(probabilities, hierarchy)
    integers = as_tensor(calibration_targets, "targets must be integers [n]").to(calibration.device)
    targets = known_targets(integers, hierarchy.num_classes)
    if targets.shape != calibration.shape[:1]:
        raise ValueError(f"probabilities and targets must be [n, K] and [n], got {tuple(calibration.shape)}")
    generator = np.random.default_rng(seed)
    seen = target_scores(calibration, targets, hierarchy, kind, generator)
    groups = torch.zeros(hierarchy.num_classes, dtype=torch.int64, device=calibration.device)
    if group_level is not None:
        if not 1 <= group_level <= hierarchy.num_levels:
            raise ValueError(f"group_level must be from 1 to {hierarchy.num_levels}, got {group_level}")
        if kind.kind == "nodes":
            raise ValueError("a set of nodes has one quantile: leave out group_level, or take a score of classes")
        groups = torch.tensor(hierarchy.level_targets[:, group_level - 1], device=calibration.device)
    quantiles = torch.stack([quantile(seen[groups[targets] == group], alpha) for group in range(int(groups.max()) + 1)])
    sets = sets_below(new, quantiles[groups], hierarchy, kind, generator)
    return sets if isinstance(probabilities, Tensor) else sets.numpy()


def quantile(scores: Tensor, alpha: float) -> Tensor:
    """Return the ceil((n + 1) (1 - alpha))-th smallest of the scores [n] of calibration examples; infinity beyond n."""
    place = math.ceil((len(scores) + 1) * (1.0 - alpha) - SLACK)
    return scores.sort().values[place - 1] if place <= len(scores) else scores.new_tensor(torch.inf)


def target_scores(
    probabilities: Tensor, targets: Tensor, hierarchy: Hierarchy, kind: SetScore, generator: np.random.Generator
) -> Tensor:
    """Return the score of the target of each example, [N]."""
    scores = torch.empty(len(probabilities), dtype=torch.float64, device=probabilities.device)
    for rows, chunk in checked_chunks(probabilities, hierarchy):
        if kind.kind == "nodes":
            scores[rows] = cover_scores(chunk, targets[rows], kind.nodes)
        else:
            scores[rows] = class_scores(chunk.classes, kind, generator).gather(1, targets[rows, None])[:, 0]
    return scores


def sets_below(
    probabilities: Tensor, bounds: Tensor, hierarchy: Hierarchy, kind: SetScore, generator: np.random.Generator
) -> Tensor:
    """Return the sets [N, K] of classes with a score of at most the bound [K] of the class; of "nodes" the first."""
    sets = torch.empty(probabilities.shape, dtype=torch.bool, device=probabilities.device)
    for rows, chunk in checked_chunks(probabilities, hierarchy):
        if kind.kind == "nodes":
            sets[rows] = covered_classes(chunk, float(bounds[0]) + SLACK, kind.nodes)
        else:
            sets[rows] = class_scores(chunk.classes, kind, generator) <= bounds + SLACK
    return sets


def class_scores(probabilities: Tensor, kind: SetScore, generator: np.random.Generator) -> Tensor:
    """Return the score of every class, [B, K], of "lac", "aps" or "raps"; see `SetScore`."""
    if kind.kind == "lac":
        return 1.0 - probabilities
    falling, order = probabilities.sort(dim=1, descending=True, stable=True)
    sums = falling.cumsum(dim=1)
    if kind.kind == "raps":
        rank = torch.arange(1, 1 + probabilities.shape[1], device=probabilities.device)
        sums = sums + kind.penalty * (rank - kind.num_free).clamp_min(0)
    if kind.randomized:
        shares = torch.from_numpy(generator.random((len(probabilities), 1))).to(probabilities)
        sums = sums - shares * falling
    return torch.empty_like(sums).scatter_(1, order, sums)


def set_nodes(sets: Tensor, probabilities: Tensor, hierarchy: Hierarchy) -> Tensor:
    """Return the lowest common ancestor [N] of each set [N, K]; of an empty set its most probable class."""
    tree = node_tables(hierarchy, sets.device).nodes
    filled = sets.clone()
    filled[torch.arange(len(sets), device=sets.device), probabilities.argmax(dim=1)] |= ~sets.any(dim=1)
    depth_first = torch.from_numpy(np.lexsort(tree.paths.cpu().numpy().T[::-1])).to(sets.device)
    in_order = filled[:, depth_first].to(torch.uint8)  # the first and the last class of a set have its ancestor
    first = depth_first[in_order.argmax(dim=1)]
    last = depth_first[-1 - in_order.flip(1).argmax(dim=1)]
    return tree.common_ancestors(tree.num_inner + first, tree.num_inner + last)


@dataclass(frozen=True)
class SetSummary:
    """What sets are worth.

    Attributes:
        coverage: share of sets with the target.
        interval: between which the coverage of as many test examples lies in 95% of the cases, if the guarantee is
            exact: beta-binomial, over calibration sets and test examples.
        size: mean number of classes.
        height: mean height of the lowest common ancestor, in edges.
        roots: share of sets whose lowest common ancestor is the root.
        empty: share of empty sets.
    """

    coverage: float
    interval: tuple[float, float]
    size: float
    height: float
    roots: float
    empty: float


def summarise_sets(
    sets: Tensor, targets: Tensor, probabilities: Tensor, hierarchy: Hierarchy, alpha: float, num_calibration: int
) -> SetSummary:
    """Return coverage and size of sets [N, K] of targets [N]; empty ones answer the most probable class as a node."""
    nodes = set_nodes(sets, probabilities, hierarchy)
    tree = node_tables(hierarchy, sets.device).nodes
    sizes = sets.sum(dim=1)
    return SetSummary(
        coverage=float(sets.gather(1, targets[:, None]).double().mean()),
        interval=coverage_interval(num_calibration, len(sets), alpha),
        size=float(sizes.double().mean()),
        height=float(tree.height[nodes].double().mean()),
        roots=float((nodes == 0).double().mean()),
        empty=float((sizes == 0).double().mean()),
    )


def measure_sets(
    calibration: Tensor,
    calibration_targets: Tensor,
    probabilities: Tensor,
    targets: Tensor,
    hierarchy: Hierarchy,
    alpha: float,
    kind: SetScore,
    group_level: int | None = None,
) -> tuple[SetSummary, dict[int, tuple[int, float]]]:
    """Return what sets of a kind are worth for examples with targets; arguments as of `conformal_sets`.

    Returns:
        The summary, and {coarsest node: (its examples, their coverage)} of the nodes that have examples.
    """
    sets = conformal_sets(
        calibration,
        calibration_targets,
        probabilities,
        hierarchy,
        alpha,
        kind.kind,
        kind.nodes,
        penalty=kind.penalty,
        num_free=kind.num_free,
        randomized=kind.randomized,
        group_level=group_level,
    )
    covered = sets.gather(1, targets[:, None])[:, 0].double()
    branch = torch.tensor(hierarchy.level_targets[:, 0], device=sets.device)[targets]
    branches = {
        node: (int((branch == node).sum()), float(covered[branch == node].mean())) for node in branch.unique().tolist()
    }
    return summarise_sets(sets, targets, probabilities, hierarchy, alpha, len(calibration)), branches


def coverage_interval(num_calibration: int, num: int, alpha: float) -> tuple[float, float]:
    """Return the 2.5% and 97.5% quantiles of the coverage of `num` test examples, for distinct scores."""
    place = math.ceil((num_calibration + 1) * (1.0 - alpha) - SLACK)
    if place > num_calibration:  # too few for a quantile: all sets are whole
        return 1.0, 1.0
    # The number of covered examples is beta-binomial; scipy.stats has it, and takes two seconds to import.
    rest = num_calibration + 1 - place
    covered = np.arange(num + 1)
    logs = betaln(covered + place, num - covered + rest) - betaln(covered + 1, num - covered + 1)
    shares = np.cumsum(np.exp(logs - betaln(place, rest) - math.log(num + 1)))
    low, high = (min(int(np.searchsorted(shares, share)), num) / num for share in (0.025, 0.975))
    return low, high
