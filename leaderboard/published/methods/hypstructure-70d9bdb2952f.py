"""HypStructure: cross-entropy, and the cophenetic correlation of all nodes in hyperbolic space."""

from typing import Literal

import torch.nn.functional as F
from torch import Tensor

from hierbench import hyperparameter
from hierbench.losses.correlations import hyperbolic_decorrelation, off_centre
from hierbench.methods.cpcc import CPCC, Outputs


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

    def loss(self, outputs: Outputs, targets: Tensor) -> dict[str, Tensor]:
        """Return the three terms for logits and features, and targets [B]."""
        logits, features = outputs
        params = self.params
        apart = hyperbolic_decorrelation(features, targets, self.hierarchy, params.nodes, params.distance, params.means)
        return {
            "cross_entropy": F.cross_entropy(logits, targets),
            "correlation": params.weight * apart,
            "centre": params.centre * off_centre(features, params.means),
        }
