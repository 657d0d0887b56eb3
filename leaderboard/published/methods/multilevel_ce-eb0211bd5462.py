"""Multi-level cross-entropy: one cross-entropy per level, of summed class probabilities or of separate heads."""

from typing import Any, Literal

from torch import Tensor, nn

from hierbench import Hierarchy, Method
from hierbench.hierarchy import Nodes, level_log_softmax
from hierbench.losses.class_losses import level_cross_entropies


class MultilevelCE(Method):
    """Sum over the levels of the cross-entropy of the target's node at the level.

    With `form = "lifted"` one classifier gives log p(class), and a node's probability is the sum of its classes'; with
    "heads" every level has a softmax over a classifier of its own. `count` says how often a class above the deepest
    level counts: "levels", once per level, as it is repeated downwards; "nodes", once.

    Shapes: B batch, D features, K classes, N nodes, L levels, M nodes of all levels, a shallow class once per level.
    """

    name = "multilevel_ce"
    title = "multi-level cross-entropy"
    source = (
        "sum of the levels' cross-entropies; both forms are baselines of Valmadre, Hierarchical classification at "
        "multiple operating points, NeurIPS 2022"
    )

    class Params(Method.Params):
        """form and count: see the class."""

        form: Literal["lifted", "heads"] = "lifted"
        count: Literal["levels", "nodes"] = "levels"

    params: Params

    def __init__(self, hierarchy: Hierarchy, num_features: int, params: Any = None) -> None:
        super().__init__(hierarchy, num_features, params)
        self.nodes = Nodes(hierarchy)
        self.sizes = list(hierarchy.level_sizes)
        num_outputs = hierarchy.num_classes if self.params.form == "lifted" else sum(self.sizes)
        self.classifier = nn.Linear(num_features, num_outputs)

    def forward(self, features: Tensor) -> Tensor:
        """Return logits [B, K], for "heads" [B, M], for features [B, D]."""
        logits: Tensor = self.classifier(features)
        return logits

    def _log_probabilities(self, outputs: Tensor) -> Tensor:
        """Return log-probabilities [B, N] of all nodes, for "heads" [B, M], normalised within each level."""
        if self.params.form == "lifted":
            return self.nodes.leaf_log_sums(outputs.log_softmax(dim=1))
        return level_log_softmax(outputs, self.sizes)

    def loss(self, outputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """Return a cross-entropy per level, coarsest first, for logits [B, K] or [B, M] and targets [B]."""
        losses = level_cross_entropies(outputs, targets, self.hierarchy, self.params.form, self.params.count)
        return {f"cross_entropy_{level}": loss for level, loss in enumerate(losses.unbind(), 1)}

    def scores(self, outputs: Tensor) -> Tensor:
        """Return the logits of the classes, [B, K]."""
        return outputs[:, -self.hierarchy.num_classes :]

    def level_scores(self, outputs: Tensor) -> list[Tensor]:
        """Return the log-probabilities of each level's nodes, coarsest first, [B, level_sizes[l]] each."""
        logs = self._log_probabilities(outputs)
        if self.params.form == "lifted":
            logs = logs.index_select(1, self.nodes.levels)
        return list(logs.split(self.sizes, dim=1))
