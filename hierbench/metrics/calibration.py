"""Expected and maximum calibration error. Shapes: N examples, K classes."""

import math

import torch
from torch import Tensor

from hierbench.metrics.levels import check_probabilities
from hierbench.metrics.ranking import known_targets

BINS = 15
SUM = 1e-4  # by how much the probabilities of an example may miss 1: files hold them in single precision


def probabilities_of(scores: Tensor) -> Tensor:
    """Return scores [N, K] in float64 where they are a distribution, else their softmax."""
    return scores.double() if is_distribution(scores) else scores.double().softmax(dim=1)


def is_distribution(scores: Tensor) -> bool:
    """Whether every row of scores [N, K] is a probability distribution over the classes."""
    if bool((scores < 0).any()) or not bool(scores.isfinite().all()):
        return False
    return bool(((scores.sum(dim=1, dtype=torch.float64) - 1.0).abs() <= SUM).all())


def bin_sums(classes: Tensor, targets: Tensor, probabilities: Tensor) -> Tensor:
    """Return the sums per bin of confidence from which ECE and MCE follow; those of batches can be added up.

    Bin b of 15 holds the confidences in (b / 15, (b + 1) / 15], the first also 0 (Guo et al., ICML 2017; torchmetrics
    closes the bins at the other end, with a sixteenth for a confidence of 1).

    Args:
        classes: [N] top-ranked classes. Confidence is their probability, which need not be the largest of a row: a
            post-hoc method ranks by other scores than the probabilities of its base.
        targets: [N] class indices.
        probabilities: [N, K].

    Returns:
        [3, 15] float64: examples, sum of confidences, correct ones.

    Raises:
        ValueError: no examples, wrong shapes, a target that is not a class, or a probability out of range.
    """
    check_probabilities(probabilities, probabilities.shape[-1])
    targets = known_targets(targets.to(classes.device), probabilities.shape[1])
    confidence = probabilities.gather(1, classes[:, None])[:, 0].double()
    edges = torch.arange(1, BINS, dtype=torch.float64, device=classes.device) / BINS
    index = torch.bucketize(confidence, edges)
    values = torch.stack([torch.ones_like(confidence), confidence, (classes == targets).double()])
    return values.new_zeros(3, BINS).index_add(1, index, values)


def calibration_errors(sums: Tensor) -> tuple[float, float]:
    """Return ECE and MCE in per cent from `bin_sums`.

    With the mean confidence and the accuracy of each bin: ECE is the mean of |accuracy - confidence| weighted by the
    examples, MCE the largest over the bins that are not empty.
    """
    examples, confidence, correct = sums.cpu()
    total = float(examples.sum())
    if not total:
        return math.nan, math.nan
    gaps = (correct - confidence).abs()
    return 100.0 * float(gaps.sum()) / total, 100.0 * float((gaps / examples.clamp_min(1.0)).max())
