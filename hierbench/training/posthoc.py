"""Post-hoc jobs: a trained run's predictions, re-ranked; nothing is trained."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from hierbench.api.method import PostHoc
from hierbench.data.prepared import Prepared
from hierbench.metrics import CHUNK, Tally
from hierbench.runs.job import Job
from hierbench.runs.store import Run
from hierbench.training.results import environment, write_result
from hierbench.utils.errors import UserError


def rescore(job: Job, prepared: Prepared, base: Run, run: Run, device: str = "cpu") -> None:
    """Apply a post-hoc method to the test predictions of its base run and write the result.

    Args:
        job: that re-ranks.
        prepared: the dataset.
        base: the run whose predictions are re-ranked.
        run: where the result goes.
        device: where to compute; MPS, which has no float64, leaves it to the CPU.

    Raises:
        UserError: the base's predictions can not be read.
    """
    try:
        scores, targets = base.predictions()
    except ValueError as error:
        raise UserError(f"{error}; the same command computes them again") from None
    method, hierarchy = job.found.cls, prepared.hierarchy(job.spec.dataset.distance)
    assert issubclass(method, PostHoc)
    posthoc = method(hierarchy, job.params)
    place = torch.device("cpu" if device == "mps" else device)
    tally, rescored = Tally(hierarchy), torch.empty(0)  # counted on the device; the scores go to the file
    chunks = rescored_chunks(posthoc, torch.from_numpy(scores), torch.from_numpy(targets), place)
    for rows, chunk, chunk_targets in chunks:
        tally.add(chunk, chunk_targets)
        if rows.start == 0:
            rescored = torch.empty(scores.shape, dtype=chunk.dtype)
        rescored[rows] = chunk
    write_result(run, method.title, rescored, torch.from_numpy(targets), tally)
    run.write_record("environment.json", environment(place, prepared))


def rescored_chunks(
    posthoc: PostHoc, scores: Tensor, targets: Tensor, device: torch.device
) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """Yield rows, re-ranked scores and targets of a chunk after the other, on the device.

    The softmax is taken in float64, so that classes tie only where the base's scores do.

    Args:
        posthoc: the method.
        scores: [N, K] of the base, anywhere.
        targets: [N].
        device: where to compute; one chunk of the scores is there at a time.
    """
    for start in range(0, len(scores), CHUNK):
        rows = slice(start, start + CHUNK)
        with torch.inference_mode():
            chunk = posthoc.rescore(scores[rows].to(device).double().softmax(dim=1))
        yield rows, chunk, targets[rows].to(device)
