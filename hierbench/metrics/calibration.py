"""Expected and maximum calibration error. Shapes: N examples, K classes."""

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from hierbench.metrics.level_metrics import check_probabilities

BINS = 15
SUM = 1e-4  # by how much the probabilities of an example may miss 1: files hold them in single precision


def as_probabilities(scores: Tensor) -> Tensor:
    """Return scores [N, K] in float64 where they are a distribution, else their softmax."""
    return scores.double() if is_distribution(scores) else scores.double().softmax(dim=1)


def is_distribution(scores: Tensor) -> bool:
    """Whether every row of scores [N, K] is a probability distribution over the classes."""
    if bool((scores < 0).any()) or not bool(scores.isfinite().all()):
        return False
    return bool(((scores.sum(dim=1, dtype=torch.float64) - 1.0).abs() <= SUM).all())


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
