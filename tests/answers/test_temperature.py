"""Temperature: the worked examples, a search by hand, and the bounds."""

import numpy as np
import pytest
import torch

from hierbench.answers import fit_temperature
from hierbench.answers.temperature import LARGEST_TEMPERATURE, LEAST_TEMPERATURE, calibrate

FIVE = [[2.0, 0, -1], [0, 1, 0], [0.5, 0, 1], [1, 2, 0], [3, 1, 0]], [0, 1, 0, 1, 2]


def test_worked_examples():
    four = calibrate([[1.0, 0.0]] * 4, [0, 0, 0, 1])
    assert four.temperature == pytest.approx(1 / np.log(3), rel=1e-8)
    assert four.nll == pytest.approx((0.563262, 0.562335), abs=5e-7)
    five = calibrate(*FIVE)
    assert five.temperature == pytest.approx(2.09611, abs=5e-6)
    assert five.nll == pytest.approx((1.095802, 1.004342), abs=5e-7)
    assert five.num == 5 and not five.at_bound
    assert fit_temperature(*FIVE) == five.temperature


def test_no_other_temperature_is_more_likely():
    generator = torch.Generator().manual_seed(0)
    scores = 3 * torch.randn(200, 6, generator=generator, dtype=torch.float64)
    targets = torch.multinomial((scores / 1.7).softmax(1), 1, generator=generator)[:, 0]
    fitted = fit_temperature(scores, targets)
    loss = {
        t: torch.nn.functional.cross_entropy(scores / t, targets).item() for t in np.linspace(0.9, 1.1, 21) * fitted
    }
    assert min(loss, key=loss.get) == pytest.approx(fitted)
    assert 1.3 < fitted < 2.2
    shifted = scores + torch.randn(200, 1, generator=generator)
    assert fit_temperature(shifted, targets) == pytest.approx(fitted)


@pytest.mark.parametrize(
    ("scores", "bound"),
    [([[2.0, 0.0], [0.0, 1.0]], LEAST_TEMPERATURE), ([[0.0, 2.0], [1.0, 0.0]], LARGEST_TEMPERATURE)],
)
def test_without_mistakes_or_worse_than_chance_the_bound_is_reported(scores, bound):
    done = calibrate(scores, [0, 1])
    assert done.temperature == bound and done.at_bound


def test_log_probabilities_of_impossible_classes():
    logs = torch.tensor([[0.75, 0.25, 0.0], [0.5, 0.5, 0.0], [0.25, 0.75, 0.0]]).log()
    assert fit_temperature(logs, [0, 1, 0]) == pytest.approx(fit_temperature(logs[:, :2], [0, 1, 0]))


def test_mistakes_are_named():
    with pytest.raises(ValueError, match="integers from 0 to 1"):
        fit_temperature([[1.0, 0.0]], [2])
    with pytest.raises(ValueError, match="scores and targets must be"):
        fit_temperature([[1.0, 0.0]], [0, 1])
