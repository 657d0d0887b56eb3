"""HypStructure: cross-entropy, and the cophenetic correlation of all nodes in hyperbolic space."""

from typing import Literal

import torch
from torch import Tensor

from hierbench import hyperparameter
from hierbench.methods.cpcc import CPCC, euclidean

BALL_MARGIN = {torch.float64: 1e-5}  # between a point and the unit sphere; of shorter types 4e-3


class HypStructure(CPCC):
    """Cross-entropy + weight (1 - r) + centre |midpoint of all examples|.

    r is that of `CPCC` with Poincare distances, by default over all nodes with examples in the batch. Features go into
    the unit ball by the exponential map at 0; the place of a node is the Einstein midpoint of its examples, as in the
    published commands. With `means = "features"` it is the image of its mean feature, and the mean feature is centred.

    Shapes: B batch, D features, M nodes.
    """

    name = "hypstructure"
    title = "HypStructure"
    source = (
        "Sinha et al., Learning Structured Representations with Hyperbolic Embeddings, NeurIPS 2024, section 3; "
        "midpoints and centring as in its published code"
    )

    class Params(CPCC.Params):
        """weight of the correlation; centre that of the mean; distance: see `CPCC`; nodes and means: see the class."""

        nodes: Literal["classes", "all"] = "all"
        centre: float = hyperparameter(0.01, low=0.0, high=100.0)
        means: Literal["midpoints", "features"] = "midpoints"

    params: Params

    def points(self, features: Tensor, members: Tensor) -> Tensor:
        """Return the places [M, D] of nodes in the ball, of features [B, D] and members [M, B]."""
        if self.params.means == "features":
            return into_ball(super().points(features, members))
        return midpoints(into_ball(features), members)

    def distances(self, points: Tensor) -> Tensor:
        """Return the hyperbolic distances [M, M] of points [M, D]."""
        inside = 1.0 - points.square().sum(dim=1)
        # 2 asinh is 2 artanh of the length of the Moebius difference, without its cancellation.
        distances: Tensor = 2.0 * torch.asinh(euclidean(points) / (inside[:, None] * inside).sqrt())
        return distances

    def further_terms(self, features: Tensor, points: Tensor) -> dict[str, Tensor]:
        """Return the distance from 0 of the mean feature, or of the midpoint of all examples."""
        mean = features.mean(dim=0)
        if self.params.means == "midpoints":
            mean = midpoints(into_ball(features), torch.ones_like(features[None, :, 0]))[0]
        return {"centre": self.params.centre * mean.norm()}


def into_ball(features: Tensor) -> Tensor:
    """Return the exponential map at 0 of features [B, D], curvature -1, not nearer to the sphere than the margin."""
    length = features.norm(dim=1, keepdim=True).clamp_min(1e-15)
    inside: Tensor = torch.tanh(length).clamp_max(1.0 - BALL_MARGIN.get(features.dtype, 4e-3)) * features / length
    return inside


def midpoints(points: Tensor, members: Tensor) -> Tensor:
    """Return the Einstein midpoints [M, D] of those points [B, D] of the ball that are members [M, B], 0 or 1."""
    klein = 2.0 * points / (1.0 + points.square().sum(dim=1, keepdim=True))
    factor = (1.0 - klein.square().sum(dim=1, keepdim=True)).rsqrt()
    middle = members @ (factor * klein) / (members @ factor).clamp_min(1.0)  # a factor is at least 1
    return middle / (1.0 + (1.0 - middle.square().sum(dim=1, keepdim=True)).sqrt())
