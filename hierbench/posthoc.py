"""Post-hoc jobs: a trained run's predictions, re-ranked; nothing is trained."""

from __future__ import annotations

import torch

from hierbench.data.prepared import Prepared
from hierbench.errors import UserError
from hierbench.job import Spec
from hierbench.method import PostHoc
from hierbench.store import Run
from hierbench.train import environment, write_result

CHUNK = 4096  # examples at a time: bounds the float64 copies


def rescore(spec: Spec, method: type[PostHoc], prepared: Prepared, base: Run, run: Run) -> None:
    """Apply a post-hoc method to the test predictions of its base run and write the result.

    The softmax is taken in float64, so that classes tie only where the base's scores do.
    """
    try:
        scores, targets = base.predictions()
    except ValueError as error:
        raise UserError(f"{error}; the same command computes them again") from None
    hierarchy = prepared.hierarchy(spec.dataset.distance)
    posthoc = method(hierarchy, method.Params.model_validate(spec.method.params))
    chunks = torch.from_numpy(scores).split(CHUNK)
    rescored = torch.cat([posthoc.rescore(chunk.double().softmax(dim=1)) for chunk in chunks])
    write_result(run, method.title, rescored, torch.from_numpy(targets), hierarchy)
    run.write_record("environment.json", environment(torch.device("cpu"), prepared))
