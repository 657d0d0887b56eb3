"""Barz & Denzler: classes are points of the unit sphere whose cosines follow the hierarchy; a cosine loss."""

from typing import Any, NamedTuple

import torch.nn.functional as F
from torch import Tensor, nn

from hierbench import Hierarchy, Method, hyperparameter
from hierbench.hierarchy import Nodes
from hierbench.hierarchy.label_tree import MATRIX_CLASSES
from hierbench.losses.class_embeddings import DepthFirstEmbedding, class_embedding


class Outputs(NamedTuple):
    """Embeddings [B, K], not normalised, and the logits [B, K] of the separate head, None without one."""

    embedding: Tensor
    logits: Tensor | None


class BarzDenzler(Method):
    """Loss 1 - cos(x, e_y), averaged, for embeddings x and the fixed e_k of the classes; scores are the cosines.

    With features of another dimension than K, a linear layer maps them to the embedding, as it does in the paper. Of
    large trees the coordinates are those of the classes in depth-first order, see `DepthFirstEmbedding`: if the targets
    are in another one, this is a rotation of the embedding.

    Shapes: B batch, D features, K classes.
    """

    name = "barz_denzler"
    title = "Barz & Denzler"
    source = "Barz & Denzler, Hierarchy-based Image Embeddings for Semantic Image Retrieval, WACV 2019"

    class Params(Method.Params):
        """Weights of a cross-entropy that is added; both are 0 in the paper's L_CORR.

        head_weight: of a head on the normalised embedding: ReLU, batch norm, linear layer; 0.1 in the paper's
            L_CORR+CLS. The head then gives the scores. The recipe's weight decay acts on it, in place of 5e-4.
        embedding_weight: of the embedding itself taken as logits, as the code of Bertinetto et al. (CVPR 2020) does
            with weight 0.1.
        """

        head_weight: float = hyperparameter(0.0, low=0.0, high=10.0, grid=(0.0, 0.1, 1.0))
        embedding_weight: float = hyperparameter(0.0, low=0.0, high=10.0, grid=(0.0, 0.1, 1.0))

    params: Params
    classes: Tensor

    def __init__(self, hierarchy: Hierarchy, num_features: int, params: Any = None) -> None:
        super().__init__(hierarchy, num_features, params)
        num_classes = hierarchy.num_classes
        self.linear = nn.Linear(num_features, num_classes) if num_features != num_classes else nn.Identity()
        nodes = Nodes(hierarchy)
        self.embedding = DepthFirstEmbedding(nodes) if num_classes > MATRIX_CLASSES else None
        if self.embedding is None:
            self.register_buffer("classes", class_embedding(nodes))  # float64, for models of any precision
        self.head: nn.Sequential | None = None
        if self.params.head_weight > 0:
            self.head = nn.Sequential(nn.ReLU(), nn.BatchNorm1d(num_classes), nn.Linear(num_classes, num_classes))

    @classmethod
    def has_logits(cls, params: Params) -> bool:
        """Whether there is a head, rather than cosines."""
        return params.head_weight > 0

    def forward(self, features: Tensor) -> Outputs:
        """Return the embeddings [B, K], and the head's logits [B, K], of features [B, D]."""
        embedding = self.linear(features)
        return Outputs(embedding, None if self.head is None else self.head(F.normalize(embedding, dim=1)))

    def loss(self, outputs: Outputs, targets: Tensor) -> dict[str, Tensor]:
        """Return the cosine loss, and the weighted cross-entropies that are asked for, for targets [B]."""
        embedding, logits = outputs
        if self.embedding is None:
            class_embeddings = self.classes[targets].to(embedding)
        else:
            class_embeddings = self.embedding.rows(targets, embedding)
        terms = {"cosine": 1.0 - F.cosine_similarity(embedding, class_embeddings, dim=1).mean()}
        if logits is not None:
            terms["cross_entropy"] = self.params.head_weight * F.cross_entropy(logits, targets)
        if self.params.embedding_weight > 0:
            weighted = self.params.embedding_weight * F.cross_entropy(embedding, targets)
            terms["embedding_cross_entropy"] = weighted
        return terms

    def scores(self, outputs: Outputs) -> Tensor:
        """Return the cosines [B, K] with the classes, or the head's logits [B, K]."""
        if outputs.logits is not None:
            return outputs.logits
        embedding = F.normalize(outputs.embedding, dim=1)
        if self.embedding is not None:
            return self.embedding.cosines(embedding)
        return F.linear(embedding, self.classes.to(embedding))
