"""HAFeature: a head per level on shared features, coupled by four loss terms."""

from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hierbench import Hierarchy, Method, hyperparameter
from hierbench.losses.class_losses import check_levels, hafeature_terms


class Outputs(NamedTuple):
    """Logits [B, M] of all levels, and the L2-normalised weights [M, D] that produced them."""

    logits: Tensor
    weight: Tensor


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

    def __init__(self, hierarchy: Hierarchy, num_features: int, params: Any = None) -> None:
        super().__init__(hierarchy, num_features, params)
        self.num_coarse = sum(hierarchy.level_sizes[:-1])
        self.heads = nn.Linear(num_features, sum(hierarchy.level_sizes))  # coarsest level first, classes last
        check_levels(hierarchy, self.params.dissimilarity_levels)  # raises before anything is trained

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
        levels = self.params.dissimilarity_levels
        return hafeature_terms(outputs.logits, targets, self.hierarchy, outputs.weight, order, levels)

    def scores(self, outputs: Outputs) -> Tensor:
        """Return the finest level's logits [B, K]."""
        return outputs.logits[:, self.num_coarse :]

    def level_scores(self, outputs: Outputs) -> list[Tensor]:
        """Return each level's logits, coarsest first."""
        return list(outputs.logits.split(self.hierarchy.level_sizes, dim=1))
