"""Post-hoc jobs: a trained run's predictions, re-ranked; nothing is trained."""

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
    """Re-rank the test predictions of `base` and write the result to `run`; MPS, without float64, leaves it to the CPU.

    Raises:
        UserError: the base's predictions cannot be read.
    """
    try:
        scores, targets = map(torch.from_numpy, base.predictions())
    except ValueError as error:
        raise UserError(f"{error}; the same command computes them again") from None
    method, hierarchy = job.found.cls, prepared.hierarchy(job.spec.dataset.distance)
    assert issubclass(method, PostHoc)
    place = torch.device("cpu" if device == "mps" else device)
    tally, rescored = Tally(hierarchy), torch.empty(0)  # counted on the device; the scores go to the file
    posthoc = method(hierarchy, job.params)
    for rows, chunk, chunk_targets in rescored_chunks(posthoc, scores, targets, place):
        tally.add(chunk, chunk_targets)
        if rows.start == 0:
            rescored = torch.empty(scores.shape, dtype=chunk.dtype)
        rescored[rows] = chunk
    write_result(run, method.title, rescored, targets, tally)
    run.write_record("environment.json", environment(place, prepared))


def rescored_chunks(
    posthoc: PostHoc, scores: Tensor, targets: Tensor, device: torch.device
) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """Yield rows, re-ranked scores and targets of one chunk after another, on the device.

    The softmax is taken in float64, so that classes tie only where the base's scores do. The base's scores [N, K] and
    targets [N] may be anywhere; one chunk of them is on the device at a time.
    """
    for start in range(0, len(scores), CHUNK):
        rows = slice(start, start + CHUNK)
        with torch.inference_mode():
            chunk = posthoc.rescore(scores[rows].to(device).double().softmax(dim=1))
        yield rows, chunk, targets[rows].to(device)
