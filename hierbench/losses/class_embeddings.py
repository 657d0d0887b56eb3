"""Class embeddings of Barz and Denzler: points of the unit sphere whose cosines follow the hierarchy; a cosine loss.

Shapes: B batch, K classes, L levels.
"""

from functools import lru_cache

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hierbench.hierarchy.label_tree import MATRIX_CLASSES, Hierarchy
from hierbench.hierarchy.levels import nodes_on
from hierbench.hierarchy.nodes import Nodes
from hierbench.losses.node_targets import TargetsAre, check_batch, refuse_nodes


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


def barz_denzler(
    embeddings: Tensor, targets: Tensor, tree: Hierarchy, *, targets_are: TargetsAre = "classes"
) -> Tensor:
    """Return the mean of 1 - cos(x, e_y) for embeddings x and the fixed unit vectors e of the classes.

    Args:
        embeddings: [B, K], of any length. Of more than `MATRIX_CLASSES` classes the coordinates are those of the
            classes in depth-first order, see `DepthFirstEmbedding`.
        targets: [B] classes.
        tree: over the K classes.
        targets_are: "classes".

    Reference: Barz & Denzler, Hierarchy-based Image Embeddings for Semantic Image Retrieval, WACV 2019.
    """
    refuse_nodes("barz_denzler", targets_are)
    check_batch("barz_denzler", embeddings, tree.num_classes, targets)
    table = _table(tree, targets.device)
    rows = table.rows(targets, embeddings) if isinstance(table, DepthFirstEmbedding) else table[targets].to(embeddings)
    return 1.0 - F.cosine_similarity(embeddings, rows, dim=1).mean()


@lru_cache(maxsize=4)
def _table(tree: Hierarchy, device: torch.device) -> Tensor | DepthFirstEmbedding:
    nodes = nodes_on(tree, torch.device("cpu"))
    return (DepthFirstEmbedding(nodes) if tree.num_classes > MATRIX_CLASSES else class_embedding(nodes)).to(device)
