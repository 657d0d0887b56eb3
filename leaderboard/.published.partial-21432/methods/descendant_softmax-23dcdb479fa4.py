"""Descendant softmax: a logit for every node; a node's probability is the share of its subtree among all nodes."""

from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hierbench import Hierarchy, Method
from hierbench.hierarchy import Nodes


class DescendantSoftmax(Method):
    """Sum over the target's path of w(n) (log Z(n) - x(n)), w(n) = 1 / classes below n.

    E(n) is the log of the sum of exp(x) over n and all nodes below. `form` says what a node competes with:

    - "cousins", the paper's soft-max-descendant: Z(n) sums over n and every node that is neither above nor below it, so
      that the path's nodes do not compete with each other; the root's term is 0.
    - "root": Z(n) = exp(E(root)), all nodes; the root has a term, too.
    - "sharing", the paper's parameter sharing: cross-entropy of a flat softmax over the sums of the logits along each
      class's path; without weights.

    Scores are E(class) - E(root), for "sharing" the sums. Weights are rounded to float32, as in the published code.
    The output for the root has no gradient but in "root".

    Shapes: B batch, D features, K classes, N nodes with the root, L levels.
    """

    name = "descendant_softmax"
    title = "descendant softmax"
    source = "Valmadre, Hierarchical classification at multiple operating points, NeurIPS 2022, soft-max-descendant"

    class Params(Method.Params):
        """form: what a node competes with, see the class."""

        form: Literal["cousins", "root", "sharing"] = "cousins"

    params: Params
    weights: Tensor

    def __init__(self, hierarchy: Hierarchy, num_features: int, params: Any = None) -> None:
        super().__init__(hierarchy, num_features, params)
        self.nodes = Nodes(hierarchy)
        self.classifier = nn.Linear(num_features, self.nodes.num_nodes)
        self.register_buffer("weights", 1.0 / self.nodes.num_leaves.float(), persistent=False)

    def forward(self, features: Tensor) -> Tensor:
        """Return logits [B, N], the root's first, for features [B, D]."""
        logits: Tensor = self.classifier(features)
        return logits

    def loss(self, outputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """Return the loss for logits [B, N] and targets [B]."""
        if self.params.form == "sharing":
            return {"cross_entropy": F.cross_entropy(self.nodes.path_sums(outputs), targets)}
        sums = self.nodes.subtree_log_sums(outputs)
        path = self.nodes.paths[targets]
        weights = self.weights[path] * self.nodes.on_path[targets]
        path_outputs = outputs.gather(1, path)
        if self.params.form == "root":
            root = self.weights[0] * (sums[:, 0] - outputs[:, 0])
            return {"descendant": ((weights * (sums[:, :1] - path_outputs)).sum(dim=1) + root).mean()}
        margins = self._cousins(sums, path) - path_outputs
        return {"descendant": -(weights * F.logsigmoid(-margins)).sum(dim=1).mean()}

    def _cousins(self, sums: Tensor, path: Tensor) -> Tensor:
        """Return [B, L]: for each node of a path [B, L], the log-sum over all nodes neither above nor below it.

        These are the subtrees, with log-sums [B, N], of the siblings of the node and of those above it: of children of
        the nodes above that are not on the path themselves.
        """
        beside = self.nodes.child_log_sums(sums.scatter(1, path, -torch.inf))
        above = F.pad(path[:, :-1], (1, 0))
        inner = above < self.nodes.num_inner  # not where the path is filled with the class
        lowest = torch.finfo(sums.dtype).min  # without siblings there is nothing beside the path
        at_depth = beside.gather(1, above * inner).masked_fill(~inner, -torch.inf).clamp_min(lowest)
        return at_depth.logcumsumexp(dim=1)

    def scores(self, outputs: Tensor) -> Tensor:
        """Return the classes' log-probabilities, or for "sharing" their logits, [B, K]."""
        if self.params.form == "sharing":
            return self.nodes.path_sums(outputs)
        return outputs[:, self.nodes.num_inner :] - self.nodes.subtree_log_sums(outputs)[:, :1]
