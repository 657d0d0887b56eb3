"""The inputs of metrics. Shapes: N examples, K classes, L levels."""

from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from hierbench.hierarchy.label_tree import Hierarchy
from hierbench.metrics.level_metrics import lifted_predictions
from hierbench.metrics.ranked_classes import check_shapes, known_targets, top_classes
from hierbench.metrics.selective import climb_probabilities

KEPT = 20  # the largest k of the default columns
SCORES_AT_A_TIME = 2**26  # of a part of the examples: half a gibibyte of probabilities


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

    scores: Tensor
    targets: Tensor
    hierarchy: Hierarchy
    probabilities: Tensor
    level_predictions: Tensor | None = None

    @staticmethod
    def rows_of_parts(num_examples: int, num_classes: int) -> list[slice]:
        """Return the rows of parts that are small enough to be held in memory."""
        rows = max(1, SCORES_AT_A_TIME // num_classes)
        return [slice(start, start + rows) for start in range(0, num_examples, rows)]

    def known_targets(self) -> Tensor:
        """Return the targets [N] int64; raise a ValueError for no examples, wrong shapes, or unknown classes."""
        check_shapes(self.scores, self.targets, self.hierarchy.num_classes)
        return known_targets(self.targets, self.hierarchy.num_classes)

    def ranked(self, k: int) -> Tensor:
        """Return the k top-ranked classes, [N, k]; up to `KEPT` of them are ranked once."""
        return self._ranked[:, :k] if k <= self._ranked.shape[1] else top_classes(self.scores, k)

    @cached_property
    def _ranked(self) -> Tensor:
        return top_classes(self.scores, min(KEPT, self.hierarchy.num_classes))

    @property
    def top(self) -> Tensor:
        """The top-ranked class, [N]."""
        return self.ranked(1)[:, 0]

    @cached_property
    def lifted(self) -> Tensor:
        """The most probable node of each level, [N, L]; see `levels.lifted_predictions`."""
        return lifted_predictions(self.probabilities, self.hierarchy)

    @cached_property
    def climb(self) -> Tensor:
        """The probabilities on the way from the top-ranked class to the root; see `selective.climb_probabilities`."""
        return climb_probabilities(self.top, self.probabilities, self.hierarchy)
