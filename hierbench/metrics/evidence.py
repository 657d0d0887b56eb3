"""What metrics are computed from. Shapes: N examples, K classes, L levels."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from hierbench.hierarchy.tree import Hierarchy

if TYPE_CHECKING:  # tables read the metrics' names and titles without torch
    from torch import Tensor


@dataclass(frozen=True, eq=False)
class Evidence:
    """Predictions for N examples; all tensors on one device.

    Attributes:
        scores: [N, K], larger = ranked earlier, ties to the lower class index.
        targets: [N] class indices.
        hierarchy: over the K classes.
        probabilities: [N, K] float64, from which confidences follow. Of a trained method the softmax of its scores, or
            the scores themselves where they are a distribution; of a post-hoc method those of its first base.
        level_predictions: [N, L] node index per level, coarsest first, as in `Hierarchy.level_targets`; None for a
            method that predicts classes alone.
    """

    scores: "Tensor"
    targets: "Tensor"
    hierarchy: Hierarchy
    probabilities: "Tensor"
    level_predictions: "Tensor | None" = None

    @cached_property
    def top(self) -> "Tensor":
        """The top-ranked class, [N]."""
        from hierbench.metrics.ranking import top_class

        return top_class(self.scores)

    @cached_property
    def lifted(self) -> "Tensor":
        """The most probable node of each level, [N, L]; see `levels.lifted_predictions`."""
        from hierbench.metrics.levels import lifted_predictions

        return lifted_predictions(self.probabilities, self.hierarchy)

    @cached_property
    def climb(self) -> "Tensor":
        """The probabilities on the way from the top-ranked class to the root; see `selective.climb_probabilities`."""
        from hierbench.metrics.selective import climb_probabilities

        return climb_probabilities(self.top, self.probabilities, self.hierarchy)
