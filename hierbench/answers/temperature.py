"""Temperature scaling (Guo et al., ICML 2017): one scale of the scores, fitted on examples that nothing else has seen.

Shapes: N examples, K classes.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from numpy.typing import ArrayLike
from scipy.optimize import brentq
from torch import Tensor

from hierbench.hierarchy.class_names import rows_in_order, scores_by_class
from hierbench.metrics.calibration import as_probabilities, bin_counts, calibration_errors
from hierbench.metrics.metric import sum_counts
from hierbench.metrics.ranked_classes import as_tensor, check_shapes, known_targets, rows_at_a_time

LEAST_TEMPERATURE = 0.05
LARGEST_TEMPERATURE = 20.0


@dataclass(frozen=True)
class Calibration:
    """A fitted temperature and what it does to the examples that it was fitted on.

    Attributes:
        temperature: T.
        at_bound: whether the likelihood still rises at T: all are right, or worse than chance.
        num: N.
        nll: mean negative log-likelihood before and after.
        ece: expected calibration error in per cent before and after.
    """

    temperature: float
    at_bound: bool
    num: int
    nll: tuple[float, float]
    ece: tuple[float, float]


def fit_temperature(scores: Tensor | ArrayLike, targets: Tensor | ArrayLike) -> float:
    """Return the temperature T, from 0.05 to 20, whose softmax(scores / T) has the largest likelihood.

    The negative log-likelihood is convex in 1 / T, so that the one zero of its derivative is found.

    Args:
        scores: [N, K] logits, or logs of probabilities.
        targets: [N] class indices.

    Raises:
        ValueError: no examples, wrong shapes, or a target that is no class.
    """
    values, true = _checked(scores, targets)

    def slope(log_temperature: float) -> float:
        """Return the derivative by 1 / T of the negative log-likelihood: it falls as T grows."""
        return _slope(values, true, math.exp(-log_temperature))

    low = math.log(LEAST_TEMPERATURE)
    high = math.log(LARGEST_TEMPERATURE)
    if slope(low) <= 0.0:
        return LEAST_TEMPERATURE
    if slope(high) >= 0.0:
        return LARGEST_TEMPERATURE
    return math.exp(brentq(slope, low, high, xtol=1e-10))


def calibrate(scores: Tensor | ArrayLike, targets: Tensor | ArrayLike) -> Calibration:
    """Return the fitted temperature with NLL and ECE before and after; arguments as for `fit_temperature`."""
    values, true = _checked(scores, targets)
    temperature = fit_temperature(values, true)
    return Calibration(
        temperature=temperature,
        at_bound=temperature in (LEAST_TEMPERATURE, LARGEST_TEMPERATURE),
        num=len(true),
        nll=(_nll(values, true, 1.0), _nll(values, true, 1.0 / temperature)),
        ece=(expected_error(values, true), expected_error(values / temperature, true)),
    )


def expected_error(scores: Tensor, targets: Tensor) -> float:
    """Return the ECE in per cent, over 15 bins, of the softmax of scores [N, K]."""
    probabilities = as_probabilities(scores, "logits")
    counts = bin_counts(probabilities.argmax(dim=1), probabilities, targets)
    return float(calibration_errors(sum_counts(counts))[0])


def _checked(scores: Any, targets: Any) -> tuple[Tensor, Tensor]:
    values = as_tensor(scores_by_class(scores, None, "scores"), "scores must be real numbers [N, K]")
    true = as_tensor(rows_in_order(scores, targets, "scores"), "targets must be integers [N]")
    check_shapes(values, true, values.shape[-1])
    return values.double(), known_targets(true.to(values.device), values.shape[1])


def _nll(scores: Tensor, targets: Tensor, scale: float) -> float:
    """Return the mean negative log-likelihood of the softmax of scale * scores."""
    total = 0.0
    for part, true in _parts(scores, targets):
        total -= float((scale * part).log_softmax(dim=1).gather(1, true).sum())
    return total / len(scores)


def _slope(scores: Tensor, targets: Tensor, scale: float) -> float:
    """Return the derivative of `_nll` by the scale."""
    total = 0.0
    for part, true in _parts(scores, targets):
        weighted = (scale * part).softmax(dim=1).mul_(part)
        expected = weighted.nan_to_num_(nan=0.0).sum(dim=1)  # 0 times a score of -inf
        total += float((expected - part.gather(1, true)[:, 0]).sum())
    return total / len(scores)


def _parts(scores: Tensor, targets: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    rows = rows_at_a_time(scores.shape[1])
    return zip(scores.split(rows), targets[:, None].split(rows), strict=True)
