"""The predictions that a report is on: of one model, in one file per seed, for the same images.

Shapes: N images, K classes, k ranked classes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from hierbench.hierarchy.label_tree import Hierarchy, IntArray
from hierbench.metrics.calibration import ScoreKind, as_probabilities
from hierbench.metrics.ranked_classes import rows_at_a_time
from hierbench.studies.scoring.alignment import match_rows
from hierbench.studies.scoring.prediction_parts import Predictions
from hierbench.studies.scoring.scores import known_kind, notes_on_scores, rank, stored_scores
from hierbench.utils.arrays import release
from hierbench.utils.errors import UserError

REPORT_KS = (1, 5)


@dataclass(frozen=True, eq=False)
class ScoredImages:
    """What one file says of N images whose target is a class.

    Attributes:
        predictions: as they were read.
        tree: over the K classes.
        ranked: [N, k] the best classes, best first; k is 1 of answers alone.
        kind: what the scores are; None without the scores of all classes.
        num_above: images left out, since their target is a node above the classes.
    """

    predictions: Predictions
    tree: Hierarchy
    ranked: IntArray
    kind: ScoreKind | None
    num_above: int = 0

    @property
    def where(self) -> str:
        """The file's name."""
        return self.predictions.where

    @property
    def targets(self) -> IntArray:
        """[N] class indices."""
        return self.predictions.true_classes

    @property
    def top(self) -> IntArray:
        """[N] the best class of each image."""
        best: IntArray = self.ranked[:, 0]
        return best

    @property
    def ks(self) -> tuple[int, ...]:
        """The ks of HierDist@k that the ranked classes allow."""
        return tuple(k for k in REPORT_KS if k <= self.ranked.shape[1])

    @property
    def units(self) -> IntArray:
        """[N] the number of the group of each image; without groups each is one of its own."""
        groups = self.predictions.groups
        if groups is None:
            return np.arange(len(self.targets))
        numbers: IntArray = np.unique(groups, return_inverse=True)[1]
        return numbers

    def logits(self, rows: slice | IntArray) -> Tensor:
        """Return numbers [B, K] float64 whose softmax are the probabilities of some images."""
        scores = stored_scores(self.predictions.all_scores[rows])
        return scores.double() if self.kind == "logits" else as_probabilities(scores, self.kind).log()

    def parts(self) -> Iterator[slice]:
        """Yield rows, a part at a time that fits into memory, and let go of those that were read."""
        size = rows_at_a_time(self.tree.num_classes)
        for start in range(0, len(self.targets), size):
            yield slice(start, min(start + size, len(self.targets)))
            release(self.predictions.all_scores)


def of_predictions(predictions: Predictions, tree: Hierarchy, stated_kind: ScoreKind | None = None) -> ScoredImages:
    """Return the images of a file with targets that are classes.

    Raises:
        UserError: no targets, none of them a class, answers above the classes, or scores of no kind.
    """
    if predictions.targets is None:
        raise UserError(f"{predictions.where} has no targets: give them, in it or in a file")
    if predictions.has_inner_answers:
        raise UserError(f"{predictions.where} answers with nodes above the classes: hierbench score measures them")
    if (predictions.targets < 0).all():
        raise UserError(f"{predictions.where}: no target is a class, all are nodes above the classes")
    labelled = predictions.labelled_with_classes()
    ranked, _, _, facts = rank(labelled, tree, REPORT_KS)
    kind = None if facts is None else known_kind(facts, predictions.where, stated_kind)[0]
    notes = (*labelled.notes, *notes_on_scores(labelled, ranked[:, 0]))
    return ScoredImages(
        replace(labelled, notes=notes), tree, ranked, kind, predictions.num_examples - labelled.num_examples
    )


def aligned(images: ScoredImages, to: ScoredImages) -> ScoredImages:
    """Return images in the order of others, by ids where both files have them.

    Raises:
        UserError: they are other images, or have other targets.
    """
    problem = f"{to.where} and {images.where} are not of the same images"
    if len(images.targets) != len(to.targets):
        raise UserError(f"{problem}: {len(to.targets):,} and {len(images.targets):,} with a class as target")
    if images.predictions.ids is not None and to.predictions.ids is not None:
        order = match_rows(images.predictions.ids, to.predictions.ids, images.where, to.where)
        if not np.array_equal(order, np.arange(len(order))):
            images = replace(images, predictions=images.predictions.take(order), ranked=images.ranked[order])
    different = int((images.targets != to.targets).sum())
    if different:
        hint = "" if images.predictions.ids else "; without ids rows are taken in their order"
        raise UserError(f"{problem}: {different:,} of {len(to.targets):,} targets differ{hint}")
    return images


def same_images(seeds: Sequence[ScoredImages]) -> list[ScoredImages]:
    """Return the seeds of a model, or both sides of a comparison, in the order of the first."""
    return [seeds[0], *(aligned(other, seeds[0]) for other in seeds[1:])]
