"""HAFeature: a head per level on shared features, coupled by four loss terms."""

from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hierbench import Hierarchy, Method, hyperparameter
from hierbench.hierarchy.levels import coarse_levels, level_log_softmax, node_parents

MAX_DISSIMILARITY = 3.0  # upper bound of the dissimilarity loss of two examples
M_FLOOR = 1e-7  # lower clamp of the mean distribution before its logarithm


class Outputs(NamedTuple):
    """Logits [B, M] of all levels, and the L2-normalised weights [M, D] that produced them."""

    logits: Tensor
    weight: Tensor


def jensen_shannon_loss(log_probs: Tensor, summed: Tensor) -> Tensor:
    """Return the JSD of the levels' own and their children's summed probabilities, summed over levels, batch mean.

    Args:
        log_probs: [B, C] of the coarse nodes' own heads.
        summed: [B, C] summed probabilities of their children.
    """
    probs = log_probs.exp()
    mean = 0.5 * (probs + summed)
    entropies = probs * log_probs + summed * summed.clamp_min(torch.finfo(summed.dtype).tiny).log()
    return (0.5 * entropies - mean * mean.clamp(M_FLOOR, 1.0).log()).sum() / len(probs)


def dissimilarity_losses(log_probs: Tensor, coarse_targets: Tensor, order: Tensor, levels: Tensor) -> Tensor:
    """Push the coarse predictions of neighbours in `order` apart where their labels differ; one loss per level.

    Args:
        log_probs: [B, C] of the coarse nodes.
        coarse_targets: [B, L - 1] node of each example at each coarse level.
        order: [B] a permutation of the batch.
        levels: [C, L - 1] membership, see `hierbench.hierarchy.levels.coarse_levels`.

    Returns:
        [L - 1].
    """
    log_probs = log_probs[order]
    coarse_targets = coarse_targets[order]
    probs = log_probs.exp()
    log_mean = (0.5 * (probs[1:] + probs[:-1])).clamp(M_FLOOR, 1.0).log()
    divergences = torch.stack([probs[:-1] * (log_probs[:-1] - log_mean), probs[1:] * (log_probs[1:] - log_mean)])
    hinges = (MAX_DISSIMILARITY - divergences @ levels).clamp_min(0.0).mean(dim=0)  # [B - 1, L - 1]
    differs = (coarse_targets[1:] != coarse_targets[:-1]).to(hinges)
    return (hinges * differs).sum(dim=0) / differs.sum(dim=0).clamp_min(1.0)


class HAFeature(Method):
    """Every level's classifier has L2-normalised rows and a bias; cross-entropy on the finest level only.

    The other terms: the JSD between a level's probabilities and those summed over children; minus the mean cosine of a
    node's weight with the normalised sum of its children's; the dissimilarity of examples that differ at a level.
    Shapes: B batch, D features, K classes, C coarse nodes of all L - 1 coarse levels, M = C + K.
    """

    name = "hafeature"
    title = "HAFeature"
    source = "Garg et al., Learning Hierarchy Aware Features, ECCV 2022; Liang & Davis, ICCV 2023, section 4"

    class Params(Method.Params):
        """The coarse levels (1 = coarsest) with the dissimilarity term; the published runs omitted some."""

        dissimilarity_levels: Literal["all"] | tuple[int, ...] = hyperparameter("all", examples=([1],))

    params: Params
    parents: Tensor
    levels: Tensor
    dissimilar: Tensor
    coarse_targets: Tensor

    def __init__(self, hierarchy: Hierarchy, num_features: int, params: Any = None) -> None:
        super().__init__(hierarchy, num_features, params)
        self.num_coarse = sum(hierarchy.level_sizes[:-1])
        self.heads = nn.Linear(num_features, sum(hierarchy.level_sizes))  # coarsest level first, classes last
        self.register_buffer("parents", node_parents(hierarchy), persistent=False)
        self.register_buffer("levels", coarse_levels(hierarchy), persistent=False)
        self.register_buffer("dissimilar", self._dissimilar_levels(), persistent=False)
        self.register_buffer("coarse_targets", torch.tensor(hierarchy.level_targets[:, :-1]), persistent=False)

    def _dissimilar_levels(self) -> Tensor:
        """Return [L - 1] float32: 1 for the levels with the dissimilarity term."""
        num_coarse_levels = self.hierarchy.num_levels - 1
        chosen_levels = self.params.dissimilarity_levels
        levels = range(1, num_coarse_levels + 1) if chosen_levels == "all" else chosen_levels
        if not set(levels) <= set(range(1, num_coarse_levels + 1)):
            raise ValueError(f"dissimilarity_levels must lie in 1 to {num_coarse_levels}, got {list(levels)}")
        return torch.tensor([float(level in levels) for level in range(1, num_coarse_levels + 1)])

    def forward(self, features: Tensor) -> Outputs:
        """Return the logits [B, M] of features [B, D] at all levels."""
        weight = F.normalize(self.heads.weight, dim=1)
        return Outputs(F.linear(features, weight, self.heads.bias), weight)

    def loss(self, outputs: Outputs, targets: Tensor) -> dict[str, Tensor]:
        """Return the four terms for targets [B]; the neighbours of the dissimilarity are drawn at random."""
        order = torch.randperm(len(targets), device=targets.device)
        return self.loss_in_order(outputs, targets, order)

    def loss_in_order(self, outputs: Outputs, targets: Tensor, order: Tensor) -> dict[str, Tensor]:
        """Return the four terms with the dissimilarity taken over neighbours in `order` [B]."""
        finest = self.hierarchy.level_sizes[0]  # nodes from here on have a parent
        log_probs = level_log_softmax(outputs.logits, self.hierarchy.level_sizes)
        coarse = log_probs[:, : self.num_coarse]
        child_probs = log_probs[:, finest:].exp()
        summed = torch.zeros_like(coarse).scatter_add(1, self.parents.expand_as(child_probs), child_probs)
        terms = {
            "cross_entropy": F.nll_loss(log_probs[:, self.num_coarse :], targets),
            "jsd": jensen_shannon_loss(coarse, summed),
            "weights": -self._weight_cosine(outputs.weight, finest),
        }
        dissimilarity = dissimilarity_losses(coarse, self.coarse_targets[targets], order, self.levels)
        return terms | {"dissimilarity": (dissimilarity * self.dissimilar).sum()}

    def _weight_cosine(self, weight: Tensor, finest: int) -> Tensor:
        """Return the mean cosine of a node's weight with its children's sum, summed over coarse levels."""
        coarse = weight[: self.num_coarse]
        summed = torch.zeros_like(coarse).index_add(0, self.parents, weight[finest:])
        cosines = (coarse * F.normalize(summed, dim=1)).sum(dim=1)
        return (cosines @ self.levels / self.levels.sum(dim=0)).sum()

    def scores(self, outputs: Outputs) -> Tensor:
        """Return the finest level's logits [B, K]."""
        return outputs.logits[:, self.num_coarse :]

    def level_scores(self, outputs: Outputs) -> list[Tensor]:
        """Return each level's logits, coarsest first."""
        return list(outputs.logits.split(self.hierarchy.level_sizes, dim=1))
