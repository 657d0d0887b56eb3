"""Expected and maximum calibration error. Shapes: N examples, K classes."""

import math
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from hierbench.metrics.computations import BINS
from hierbench.metrics.ranked_classes import check_probabilities

SUM = 0.01  # by how much probabilities may miss a sum of 1: files round them, or hold them in half precision
SINGLE_PRECISION = 1e-4  # by how much they do in single precision, in which they are taken as they are
ScoreKind = Literal["probabilities", "logits", "votes"]


def as_probabilities(scores: Tensor, kind: ScoreKind | None = None) -> Tensor:
    """Return scores [N, K] as probabilities in float64: with a sum of 1 where they are that, else their softmax.

    Votes are divided by the sum of their row.

    Raises:
        ValueError: as `score_kind`; a row has +inf, or nothing but -inf, so that its softmax is not defined; or votes
            are negative, or a row has none.
    """
    values = scores.double()
    kind = kind or score_kind(scores)
    if kind == "logits":
        row = first_unbounded(scores)
        if row is not None:
            raise ValueError(f"row {row} of the scores has +inf, or nothing but -inf")
        return values.softmax(dim=1)
    sums = values.sum(dim=1, keepdim=True)
    if kind == "votes":
        odd = ((values < 0).any(dim=1) | ~(sums[:, 0] > 0)).nonzero()
        if len(odd):
            raise ValueError(f"row {int(odd[0])} of the votes has a negative number, or none above 0")
        return values / sums
    return torch.where((sums - 1.0).abs() > SINGLE_PRECISION, values / sums, values)


def score_kind(scores: Tensor) -> ScoreKind:
    """Return what scores [N, K] are, see `kind_of_rows`."""
    return kind_of_rows(row_facts(scores))


def row_facts(scores: Tensor) -> Tensor:
    """Return the least score, the largest one and the sum of each row of scores [N, K], [N, 3] float64."""
    least, largest = scores.aminmax(dim=1)
    return torch.stack([least.double(), largest.double(), scores.sum(dim=1, dtype=torch.float64)], dim=1)


def kind_of_rows(facts: Tensor) -> ScoreKind:
    """Return what scores are by the `row_facts` [N, 3]: probabilities, logits, or an error.

    Probabilities are not negative and sum to 1 within 1%. Numbers that are not negative and sum to one other constant,
    and numbers from 0 to 1 that do not sum to 1, are neither.

    Raises:
        ValueError: some rows are probabilities and others are not; or they are votes, per cent or sigmoids.
    """
    least, largest, sums = facts.unbind(dim=1)
    are_probabilities = (least >= 0) & ((sums - 1.0).abs() <= SUM)
    if bool(are_probabilities.all()):
        return "probabilities"
    if bool(are_probabilities.any()):
        num = int(are_probabilities.sum())
        first = int((~are_probabilities).nonzero()[0])
        raise ValueError(
            f"{num:,} of {len(facts):,} rows look like probabilities and the others do not, first row {first}: say "
            "which they are, probabilities or logits"
        )
    if bool((least >= 0).all()):
        low, high = (float(value) for value in sums.aminmax())
        if len(facts) > 1 and 0.0 < high < math.inf and high - low <= SUM * high:
            raise ValueError(f"each row of scores sums to {high:g}: say whether they are votes, or logits")
        if bool((largest <= 1.0).all()):
            raise ValueError(
                "scores from 0 to 1 that do not sum to 1, as those of sigmoids, are no distribution over the classes: "
                "say votes to divide each row by its sum, or logits"
            )
    return "logits"


def probability_rows(scores: Tensor) -> Tensor:
    """Return for each row of scores [N, K] whether it is a probability distribution over the classes, [N] bool."""
    least, _, sums = row_facts(scores).unbind(dim=1)
    return (least >= 0) & ((sums - 1.0).abs() <= SUM)


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
