"""Soft labels: the target is a distribution over all classes that decays with their distance from the true one."""

from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hierbench import Hierarchy, Method, hyperparameter
from hierbench.hierarchy import Nodes


class SoftLabels(Method):
    """KL divergence of softmax(x) from the target t_y(c) = exp(-beta D(y, c) / max D) / Z_y.

    D depends on c only through the node where the paths of y and c part, so t_y is a number per node of y's path, and
    no [K, K] table is needed. With v(n) = exp(-beta D(n) / max D), D(n) the distance of classes that part at n:

        sum_c t_y(c) log p(c) = 1 / Z_y  sum_n (v(n) - v(parent of n))  sum_{c below n} log p(c),

    n along y's path with the root, above which v is 0.

    The published code takes the mean over classes, too, which makes loss and gradient K times smaller:
    `reduction = "mean"`. The default is the mean over the batch alone, as in the paper. The code's batches also round
    the targets to float32.

    Shapes: B batch, D features, K classes, N nodes, L levels.
    """

    name = "soft_labels"
    title = "soft labels"
    source = "Bertinetto et al., Making Better Mistakes, CVPR 2020, section 3.2"

    class Params(Method.Params):
        """beta: decay of the targets, one-hot for large values; reduction: see the class."""

        beta: float = hyperparameter(10.0, low=0.0, high=1000.0, grid=(4.0, 10.0, 30.0))
        reduction: Literal["batchmean", "mean"] = "batchmean"

    params: Params
    counts: Tensor

    def __init__(self, hierarchy: Hierarchy, num_features: int, params: Any = None) -> None:
        super().__init__(hierarchy, num_features, params)
        self.nodes = Nodes(hierarchy)
        self.classifier = nn.Linear(num_features, hierarchy.num_classes)
        self.largest = int(self.nodes.distance[self.nodes.num_leaves == hierarchy.num_classes].min())  # all below
        path = F.pad(self.nodes.paths, (1, 0))  # with the root; filled with the class
        sizes = self.nodes.num_leaves[path]
        counts = sizes - F.pad(sizes[:, 1:], (0, 1))
        self.register_buffer("counts", counts, persistent=False)  # [K, L + 1] whose paths part from the class's there

    def forward(self, features: Tensor) -> Tensor:
        """Return logits [B, K] for features [B, D]."""
        logits: Tensor = self.classifier(features)
        return logits

    def loss(self, outputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """Return the divergence for logits [B, K] and targets [B]."""
        sums = self.nodes.leaf_sums(outputs.log_softmax(dim=1))
        path = F.pad(self.nodes.paths[targets], (1, 0))  # [B, L + 1]; filled with the class, which adds nothing
        counts = self.counts[targets]
        logs = -self.params.beta / self.largest * self.nodes.distance[path].to(outputs.dtype)
        normaliser = (counts * logs.exp()).sum(dim=1, keepdim=True)
        soft = logs.exp() / normaliser  # the target probability of one class that parts at the node
        negentropy = (counts * soft * (logs - normaliser.log())).sum(dim=1)
        steps = torch.diff(soft, dim=1, prepend=torch.zeros_like(soft[:, :1]))
        divergence = (negentropy - (steps * sums.gather(1, path)).sum(dim=1)).mean()
        scale = self.hierarchy.num_classes if self.params.reduction == "mean" else 1
        return {"divergence": divergence / scale}

    def scores(self, outputs: Tensor) -> Tensor:
        """Return the logits [B, K]."""
        return outputs
