"""Post-hoc jobs: a trained run's predictions, re-ranked; nothing is trained."""

from __future__ import annotations

import torch
from torch import Tensor

from hierbench.data.prepared import Prepared
from hierbench.errors import UserError
from hierbench.files import write_json
from hierbench.hierarchy import Hierarchy
from hierbench.job import Spec
from hierbench.method import PostHoc
from hierbench.metrics import CHUNK, Tally
from hierbench.store import Run
from hierbench.train import environment


def rescore(spec: Spec, method: type[PostHoc], prepared: Prepared, base: Run, run: Run, device: str = "cpu") -> None:
    """Apply a post-hoc method to the test predictions of its base run and write the result.

    Args:
        spec: of the job.
        method: the class that `spec.method` names.
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
        raise UserError(f"{error}; remove the folder {base.folder} to train it again") from None
    hierarchy = prepared.hierarchy(spec.dataset.distance)
    posthoc = method(hierarchy, method.Params.model_validate(spec.method.params))
    place = torch.device("cpu" if device == "mps" else device)
    rescored, tally = rescored_scores(posthoc, torch.from_numpy(scores), torch.from_numpy(targets), hierarchy, place)
    run.write_predictions(rescored.numpy(), targets)
    metrics = {
        "schema": 1,
        "title": method.title,
        "test": tally.metrics(),
        "mistakes_by_distance": tally.mistakes_by_distance(),
    }
    write_json(run.folder / "metrics.json", metrics)
    write_json(run.folder / "environment.json", environment(place, prepared))


@torch.inference_mode()
def rescored_scores(
    posthoc: PostHoc, scores: Tensor, targets: Tensor, hierarchy: Hierarchy, device: torch.device
) -> tuple[Tensor, Tally]:
    """Return the re-ranked scores [N, K] on the CPU, for the file, and their tally, counted on the device.

    The softmax is taken in float64, so that classes tie only where the base's scores do.

    Args:
        posthoc: the method.
        scores: [N, K] of the base.
        targets: [N].
        hierarchy: over the K classes.
        device: where to compute; a chunk of the scores is there at a time.
    """
    tally, rescored = Tally(hierarchy), torch.empty(0)
    for start in range(0, len(scores), CHUNK):
        rows = slice(start, start + CHUNK)
        chunk = posthoc.rescore(scores[rows].to(device).double().softmax(dim=1))
        tally.add(chunk, targets[rows].to(device))
        if start == 0:
            rescored = torch.empty(scores.shape, dtype=chunk.dtype)
        rescored[rows] = chunk
    return rescored, tally
