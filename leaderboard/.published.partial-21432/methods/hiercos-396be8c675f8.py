"""Hier-COS: an orthogonal direction per node; a class owns the subspace that its path spans."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hierbench import Hierarchy, Method, hyperparameter
from hierbench.hierarchy import Nodes

FLOOR = 1e-24  # of a squared length that is divided by


def random_rotation(size: int) -> Tensor:
    """Return a Haar-distributed orthogonal matrix [size, size] float64 from torch's generator."""
    q, r = torch.linalg.qr(torch.randn(size, size, dtype=torch.float64))
    rotation: Tensor = q * r.diagonal().sign()
    return rotation


def path_distribution(on_path: Tensor) -> Tensor:
    """Return [B, L] float64: the target distribution over paths, 0 where `Nodes.on_path` [B, L] is False.

    Node i of a path of m nodes gets exp(2 / (m - i + 1)), normalised: the leaf has the largest share.
    """
    place = torch.arange(on_path.shape[1], device=on_path.device)
    exponents = 2.0 / (on_path.sum(dim=1, keepdim=True) - place).clamp_min(1).double()
    return exponents.masked_fill(~on_path, -torch.inf).softmax(dim=1)


class HierCOS(Method):
    """z = W h with a fixed rotation W, an entry per node below the root; a score is the length of z on a path.

    The loss is KL(g || softmax |z|) with g on the target's path, see `path_distribution`, plus alpha times, per depth,
    the mean L1 distance of the normalised |z| of its nodes from the one-hot target. Examples whose path ends above a
    depth have no target there; they add their mean sum of |z|, whose lengths cannot be normalised if they are to
    vanish. That sum grows with the number of nodes, so ragged trees need a smaller alpha (published: 1e-5 for
    tieredImageNet-H). A mean over no examples is 0; the published code leaves out a depth if every target is its first
    node, which is not repeated. Sums of squares along paths replace its projections [K, N - 1, N - 1].

    With features of another dimension than N - 1, a linear layer maps them to z. It absorbs the rotation W, which is
    then left out: SGD with momentum and weight decay takes the same steps in any basis (AdamW does not).

    Shapes: B batch, D features, K classes, N nodes with the root, L levels.
    """

    name = "hiercos"
    title = "Hier-COS"
    source = "Sani & Anand, Hier-COS: Composition of Orthogonal Subspaces, CVPR 2026; terms as in its published code"

    class Params(Method.Params):
        """alpha weighs the distances from one-hot; published: 0.05 CIFAR-100, 0.1 FGVC, 1e-3 iNaturalist 2019."""

        alpha: float = hyperparameter(0.05, low=0.0, high=10.0, grid=(1e-5, 1e-3, 0.05, 0.1))

    params: Params
    rotation: Tensor | None
    shares: Tensor

    def __init__(self, hierarchy: Hierarchy, num_features: int, params: Any = None) -> None:
        super().__init__(hierarchy, num_features, params)
        self.nodes = Nodes(hierarchy)
        self.register_buffer("shares", path_distribution(self.nodes.on_path), persistent=False)  # [K, L] float64
        size = self.nodes.num_nodes - 1
        self.linear = nn.Linear(num_features, size) if num_features != size else None
        rotation = random_rotation(size).to(torch.get_default_dtype()) if self.linear is None else None
        self.register_buffer("rotation", rotation)

    def forward(self, features: Tensor) -> Tensor:
        """Return z [B, N - 1] for features [B, D]; column n - 1 belongs to node n."""
        if self.linear is not None:
            z: Tensor = self.linear(features)
            return z
        return F.linear(features, self.rotation)  # type: ignore[arg-type]

    def loss(self, outputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """Return the two weighted terms for targets [B]."""
        sizes = outputs.abs()
        path = self.nodes.paths[targets] - 1  # [B, L]
        on_path = self.nodes.on_path[targets]
        own = sizes.gather(1, path)
        wanted = self.shares[targets]
        entropy = torch.special.entr(wanted).sum(dim=1).to(sizes)
        divergences = sizes.logsumexp(dim=1) - (wanted.to(sizes) * own).sum(dim=1) - entropy
        terms = {"kl": divergences.mean()}

        level = (self.nodes.depth[1:] - 1).expand_as(sizes)
        zeros = torch.zeros_like(own)
        sums = zeros.scatter_add(1, level, sizes)  # [B, L], as all below
        lengths = zeros.scatter_add(1, level, sizes.square()).clamp_min(FLOOR).sqrt()
        distances = 1.0 + (sums - 2.0 * own) / lengths  # the target's entry is at most 1
        present, absent = on_path.to(sizes), (~on_path).to(sizes)
        means = (distances * present).sum(dim=0) / present.sum(dim=0).clamp_min(1.0)
        missing = (sums * absent).sum(dim=0) / absent.sum(dim=0).clamp_min(1.0)
        return terms | {"levels": self.params.alpha * (means + missing).sum()}

    def scores(self, outputs: Tensor) -> Tensor:
        """Return the length [B, K] of z on each class's path."""
        squares = F.pad(outputs.square(), (1, 0))  # the root has no direction
        return self.nodes.path_sums(squares).sqrt()

    def level_scores(self, outputs: Tensor) -> list[Tensor]:
        """Return [B, level_sizes[l]] per level: the length of z on a node, its ancestors and its descendants."""
        squares = F.pad(outputs.square(), (1, 0))
        lengths = (self.nodes.ancestor_sums(squares) + self.nodes.subtree_sums(squares) - squares).sqrt()
        return list(lengths[:, self.nodes.levels].split(list(self.hierarchy.level_sizes), dim=1))
