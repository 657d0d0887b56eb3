"""Descendant softmax: a logit for every node; a node's probability is the share of its subtree among all nodes."""

from typing import Any, Literal

from torch import Tensor, nn

from hierbench import Hierarchy, Method
from hierbench.hierarchy import Nodes
from hierbench.losses import descendant_softmax


class DescendantSoftmax(Method):
    """The loss is `hierbench.losses.descendant_softmax`; `form` says what a node competes with.

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

    def __init__(self, hierarchy: Hierarchy, num_features: int, params: Any = None) -> None:
        super().__init__(hierarchy, num_features, params)
        self.nodes = Nodes(hierarchy)
        self.classifier = nn.Linear(num_features, self.nodes.num_nodes)

    def forward(self, features: Tensor) -> Tensor:
        """Return logits [B, N], the root's first, for features [B, D]."""
        logits: Tensor = self.classifier(features)
        return logits

    def loss(self, outputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """Return the loss for logits [B, N] and targets [B]."""
        loss = descendant_softmax(outputs, targets, self.hierarchy, form=self.params.form)
        return {"cross_entropy" if self.params.form == "sharing" else "descendant": loss}

    def scores(self, outputs: Tensor) -> Tensor:
        """Return the classes' log-probabilities, or for "sharing" their logits, [B, K]."""
        if self.params.form == "sharing":
            return self.nodes.path_sums(outputs)
        return outputs[:, self.nodes.num_inner :] - self.nodes.subtree_log_sums(outputs)[:, :1]
