"""Risk over coverage of the climbing rule, at coverages that all runs share, and accuracy by level."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from hierbench.metrics.evidence import Evidence

Floats = NDArray[np.float64]
COVERAGES: Floats = np.linspace(0.0, 1.0, 101)
CLIMBING = "haurc_climbing"
BY_LEVEL = {  # metric: how the node of a level is predicted
    "level_accuracy": "of the class ranked first",
    "level_accuracy_lifted": "lifted, of the largest sum of probabilities",
}


def level_names(num_levels: int) -> list[str]:
    """Return the names of the metrics by level, all of one kind after the other."""
    return [f"{kind}@{level}" for kind in BY_LEVEL for level in range(1, num_levels + 1)]


def risk_over_coverage(evidence: "Evidence") -> Floats:
    """Return the risk of the climbing rule at each of `COVERAGES`, linear between the thresholds of the predictions."""
    from hierbench.metrics.selective import climb_probabilities, operating_curve

    climb = climb_probabilities(evidence.top, evidence.probabilities, evidence.hierarchy)
    curve = operating_curve(evidence.top, evidence.targets, climb, evidence.hierarchy)
    coverage, risk = curve.coverage.numpy()[::-1], curve.risk.numpy()[::-1]
    risks: Floats = np.interp(COVERAGES, coverage, risk)
    return risks
