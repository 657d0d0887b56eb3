"""The check of a user's metric before it is used: on a small ragged tree, whole and in parts."""

import math

import numpy as np
import torch

from hierbench.hierarchy.label_tree import Hierarchy
from hierbench.metrics.metric import Metric
from hierbench.metrics.metric_inputs import Evidence
from hierbench.utils.errors import UserError, error_line, foreign_errors


def check_metric(metric: Metric) -> None:
    """Raise a UserError unless a metric gives a number, the same of examples together and in two parts."""
    tree = Hierarchy.from_paths({path[-1]: path for path in (("A", "B", "a"), ("A", "B", "b"), ("A", "c"), ("d", "e"))})
    rng = np.random.default_rng(0)
    probabilities = torch.from_numpy(rng.dirichlet(np.ones(4), size=24))
    targets = torch.from_numpy(rng.integers(4, size=24))

    def evidence(rows: slice) -> Evidence:
        return Evidence(probabilities[rows], targets[rows], tree, probabilities[rows])

    def count(rows: slice) -> torch.Tensor:
        needs = metric.needs(evidence(rows), metric.parameter)
        added = metric.contributions(*needs, targets[rows], tree)
        if added.ndim != 2 or len(added) != len(targets[rows]):
            raise ValueError(f"contributions must be [N, S], a row for each image, got {tuple(added.shape)}")
        return metric.count(needs, targets[rows], tree)

    def problem(error: BaseException) -> UserError:
        return UserError(f"metric {metric.name} fails: {error_line(error)}")

    with foreign_errors(problem):
        full_value = metric.value_of([count(slice(None))])
        parts = metric.value_of([count(slice(0, 10)), count(slice(10, None))])
    if not math.isclose(full_value, parts, rel_tol=1e-9, abs_tol=1e-12):
        raise UserError(
            f"metric {metric.name} is {full_value:g} of all examples, and {parts:g} of the same in two parts"
        )
