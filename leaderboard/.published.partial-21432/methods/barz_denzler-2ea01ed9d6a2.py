"""Barz & Denzler: classes are points of the unit sphere whose cosines follow the hierarchy; a cosine loss."""

from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hierbench import Hierarchy, Method, hyperparameter
from hierbench.hierarchy import Nodes
from hierbench.hierarchy.label_tree import MATRIX_CLASSES


class Outputs(NamedTuple):
    """Embeddings [B, K], not normalised, and the logits [B, K] of the separate head, None without one."""

    embedding: Tensor
    logits: Tensor | None


def class_embedding(nodes: Nodes) -> Tensor:
    """Return E [K, K] float64, one class per row: E E^T = S = 1 - height(LCA) / height(root), E lower triangular.

    Unit rows; classes that meet only at the root are orthogonal. S is positive definite for every tree, because a
    leaf's height is less than its parent's, so E is its Cholesky factor. The heights are edges down to the deepest
    leaf, also where the hierarchy's distances are "depth".

    Reference: Barz & Denzler, WACV 2019, whose algorithm for the embeddings gives this factor.
    """
    num_classes = len(nodes.paths)
    similarity = torch.zeros(num_classes, num_classes, dtype=torch.float64)
    for ancestors in nodes.paths.T:  # level by level, so the deepest shared node decides
        value = 1.0 - nodes.height[ancestors].double() / nodes.height[0]
        torch.where(ancestors[:, None] == ancestors[None, :], value[:, None], similarity, out=similarity)
    factor: Tensor = torch.linalg.cholesky(similarity)
    return factor


class DepthFirstEmbedding(nn.Module):
    """The factor E of `class_embedding`, for classes in depth-first order: O(K L) numbers in place of [K, K].

    In this order E[i, j] of i > j depends on j and the lowest common ancestor of both alone: before i, the classes
    below another child of that node are all met or none. The product with E is one of running sums along the order.

    Shapes: B batch, K classes, L levels.

    Attributes:
        place: [K] of each class in the order, in which nodes stand by their first class.
        starts: [K, L + 1] the first place below the node at each depth of a place's path, the root first.
        factor: [K, L + 1] float64: E[i, j] of place j, for the depth of the common ancestor; last the diagonal.
    """

    place: Tensor
    starts: Tensor
    factor: Tensor

    def __init__(self, nodes: Nodes) -> None:
        super().__init__()
        paths = nodes.paths.numpy()
        num_classes, num_levels = paths.shape
        first = np.full(nodes.num_nodes, num_classes)
        np.minimum.at(first, paths, np.arange(num_classes)[:, None])
        order = np.lexsort(first[paths].T[::-1])
        paths = np.pad(paths[order], ((0, 0), (1, 0)))  # with the root
        differs = np.ones_like(paths, dtype=bool)
        differs[1:] = paths[1:] != paths[:-1]
        parting = differs.argmax(axis=1) - 1  # depth of the common ancestor with the class before
        starts = np.maximum.accumulate(np.where(differs, np.arange(num_classes)[:, None], 0))
        inner = paths[:, :-1]
        similarity = 1.0 - nodes.height.numpy()[inner] / float(nodes.height[0])
        factor = np.zeros((num_classes, num_levels + 1))
        # For each ancestor, by depth: sums of products E[., m] E[., m] over the classes m below its earlier children,
        # and below the child on the path.
        earlier = np.zeros((num_levels, num_levels))
        current = np.zeros((num_levels, num_levels))
        for place, depth in enumerate(parting):
            earlier[depth] += current[depth]
            earlier[depth + 1 :] = 0.0
            current[depth:] = 0.0
            explained = np.cumsum(np.diag(earlier))
            above = np.tril(earlier, -1).sum(axis=0)
            factor[place, -1] = np.sqrt(1.0 - explained[-1])
            rest = (similarity[place] - explained - above) / factor[place, -1]
            row = np.where(inner[place] < nodes.num_inner, rest, 0.0)
            current += np.outer(row, row)
            factor[place, :-1] = row
        for name, table in {"place": np.argsort(order), "starts": starts, "factor": factor}.items():
            self.register_buffer(name, torch.from_numpy(table), persistent=False)

    def rows(self, classes: Tensor, like: Tensor) -> Tensor:
        """Return the rows of E [B, K] of classes [B], in the type of `like`."""
        places = self.place[classes]
        depth = torch.zeros(len(places), len(self.place), dtype=torch.uint8, device=places.device)
        starts = self.starts[places]
        depth.scatter_add_(1, starts, torch.ones_like(starts, dtype=torch.uint8))
        depth = depth.cumsum(1, dtype=torch.int32).sub_(1)  # of the common ancestor with each place before
        every = torch.arange(len(self.place), device=places.device)
        return torch.where(every <= places[:, None], self.factor.to(like)[every, depth], 0.0)

    def cosines(self, embedding: Tensor) -> Tensor:
        """Return embedding @ E.T [B, K], classes in their own order, for embeddings [B, K]."""
        factor = self.factor.to(embedding)
        products = embedding * factor[:, -1]
        for depth in range(factor.shape[1] - 1):
            before = F.pad((embedding * factor[:, depth]).cumsum(1), (1, 0))
            products += before[:, self.starts[:, depth + 1]] - before[:, self.starts[:, depth]]
        return products[:, self.place]


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
