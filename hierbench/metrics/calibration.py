"""Expected and maximum calibration error. Shapes: N examples, K classes."""

from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from hierbench.metrics.ranked_classes import check_probabilities

BINS = 15
SUM = 0.01  # by how much probabilities may miss a sum of 1: files round them, or hold them in half precision
SINGLE_PRECISION = 1e-4  # by how much they do in single precision, in which they are taken as they are
ScoreKind = Literal["probabilities", "logits"]


def as_probabilities(scores: Tensor, kind: ScoreKind | None = None) -> Tensor:
    """Return scores [N, K] as probabilities in float64: with a sum of 1 where they are that, else their softmax.

    Raises:
        ValueError: as `score_kind`; or a row has +inf, or nothing but -inf, so that its softmax is not defined.
    """
    values = scores.double()
    if (kind or score_kind(scores)) == "probabilities":
        sums = values.sum(dim=1, keepdim=True)
        return torch.where((sums - 1.0).abs() > SINGLE_PRECISION, values / sums, values)
    row = first_unbounded(scores)
    if row is not None:
        raise ValueError(f"row {row} of the scores has +inf, or nothing but -inf")
    return values.softmax(dim=1)


def score_kind(scores: Tensor) -> ScoreKind:
    """Return what scores [N, K] are: probabilities if no score of a row is negative and each row sums to 1 within 1%.

    Raises:
        ValueError: some rows are probabilities and others are not.
    """
    are_probabilities = probability_rows(scores)
    if bool(are_probabilities.all()):
        return "probabilities"
    if bool(are_probabilities.any()):
        num = int(are_probabilities.sum())
        first = int((~are_probabilities).nonzero()[0])
        raise ValueError(
            f"{num:,} of {len(scores):,} rows look like probabilities and the others do not, first row {first}: say "
            "which they are, probabilities or logits"
        )
    return "logits"


def probability_rows(scores: Tensor) -> Tensor:
    """Return for each row of scores [N, K] whether it is a probability distribution over the classes, [N] bool."""
    sums = scores.sum(dim=1, dtype=torch.float64)
    return (scores >= 0).all(dim=1) & ((sums - 1.0).abs() <= SUM)


def first_unbounded(scores: Tensor) -> int | None:
    """Return the first row of scores [N, K] with +inf, or with nothing but -inf, which has no softmax; or None."""
    rows = scores.amax(dim=1).isinf().nonzero()
    return int(rows[0]) if len(rows) else None


def bin_counts(classes: Tensor, probabilities: Tensor, targets: Tensor) -> Tensor:
    """Return each example's contribution to the sums per bin of confidence from which ECE and MCE follow.

    Bin b of 15 holds the confidences in (b / 15, (b + 1) / 15], the first also 0 (Guo et al., ICML 2017; torchmetrics
    closes the bins at the other end, with a sixteenth for a confidence of 1).

    Args:
        classes: [N] top-ranked classes. Confidence is their probability, which need not be the largest of a row: a
            post-hoc method ranks by other scores than the probabilities of its base.
        probabilities: [N, K].
        targets: [N] class indices.

    Returns:
        [N, 3 * 15] float64: 1 in its bin, then its confidence there, then 1 if correct there.

    Raises:
        ValueError: wrong shapes, or a probability out of range.
    """
    check_probabilities(probabilities, probabilities.shape[-1])
    confidence = probabilities.gather(1, classes[:, None])[:, 0].double()
    edges = torch.arange(1, BINS, dtype=torch.float64, device=classes.device) / BINS
    in_bin = one_hot(torch.bucketize(confidence, edges), BINS).double()
    values = torch.stack([torch.ones_like(confidence), confidence, (classes == targets).double()], dim=1)
    return (values[:, :, None] * in_bin[:, None]).flatten(1)


def calibration_errors(sums: Tensor) -> Tensor:
    """Return ECE and MCE [2] in per cent from the number of examples and their `bin_counts`, [1 + 3 * 15].

    With the mean confidence and the accuracy of each bin: ECE is the mean of |accuracy - confidence| weighted by the
    examples, MCE the largest over the bins that are not empty.
    """
    examples, confidence, correct = sums[1:].reshape(3, BINS)
    gaps = (correct - confidence).abs()
    return 100.0 * torch.stack([gaps.sum() / sums[0], (gaps / examples.clamp_min(1.0)).max()])
