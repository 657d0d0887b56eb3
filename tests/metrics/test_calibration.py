"""What scores are: probabilities, logits, or neither."""

import pytest
import torch

from hierbench.metrics.calibration import as_probabilities, score_kind


@pytest.mark.parametrize(
    ("scores", "kind"),
    [
        ([[0.2, 0.8], [0.5, 0.5]], "probabilities"),
        ([[0.2, 0.8], [0.5, 0.495]], "probabilities"),
        ([[-1.0, 2.0], [0.5, 0.5]], "look like probabilities"),
        ([[1.0, 2.0], [0.5, -0.1]], "logits"),
        ([[3.0, 1.0], [0.0, 0.5]], "logits"),
        ([[20.0, 80.0], [50.0, 50.0]], "sums to 100"),
        ([[3.0, 7.0], [6.0, 4.0]], "sums to 10"),
        ([[0.9, 0.8], [0.1, 0.2]], "as those of sigmoids"),
    ],
)
def test_scores_are_probabilities_logits_or_neither(scores, kind):
    table = torch.tensor(scores, dtype=torch.float64)
    if kind in ("probabilities", "logits"):
        assert score_kind(table) == kind
        return
    with pytest.raises(ValueError, match=kind):
        score_kind(table)
    if (table >= 0).all():
        assert torch.equal(as_probabilities(table, "votes"), table / table.sum(dim=1, keepdim=True))
    with pytest.raises(ValueError, match="none above 0"):
        as_probabilities(torch.zeros(2, 3), "votes")
