"""Post-hoc jobs: predictions of trained runs, re-ranked; nothing is trained.

Shapes: N examples of the test split, N_val of the validation split, K classes.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from hierbench.api.method import PostHoc, check_shape
from hierbench.data.feature_split import open_split
from hierbench.data.prepared import Prepared
from hierbench.hierarchy.label_tree import Hierarchy
from hierbench.metrics import Tally
from hierbench.metrics.sums import EXAMPLES_PER_CHUNK
from hierbench.runs.job import Job
from hierbench.runs.record import Record
from hierbench.runs.store import Run
from hierbench.training.checkpoint import load_checkpoint
from hierbench.training.fabric import make_fabric
from hierbench.training.prediction import predict
from hierbench.training.results import environment, write_result
from hierbench.training.step import new_classifier
from hierbench.training.trainer import seed_for
from hierbench.utils.arrays import scratch
from hierbench.utils.errors import UserError

FIT = 1  # the part of a run's seed that `fit` has; nothing else of a post-hoc job is random


def rescore(job: Job, prepared: Prepared, bases: Sequence[Record], run: Run, device: str = "cpu") -> None:
    """Re-rank the test predictions of `bases` and write the result to `run`; on the CPU for MPS, which lacks float64.

    Raises:
        UserError: a base's predictions cannot be read, those of several are not of the same examples, or a base has no
            checkpoint where its scores on the validation split are needed.
    """
    scores, targets = _predictions(bases)
    method = job.method.cls
    hierarchy = prepared.hierarchy(job.spec.dataset.distance)
    assert issubclass(method, PostHoc)
    place = torch.device("cpu" if device == "mps" else device)
    tally = Tally(hierarchy)  # counts on the device
    rescored = torch.empty(0)  # the scores, which go to the file
    posthoc = method(hierarchy, job.params)
    if method.needs_validation:
        _fit(posthoc, job, prepared, bases, place)
    for rows, chunk, chunk_targets in rescored_chunks(posthoc, scores, targets, place):
        tally.add(chunk, chunk_targets)
        if rows.start == 0:
            rescored = torch.from_numpy(scratch(tuple(scores[0].shape), chunk.cpu().numpy().dtype, run.folder))
        rescored[rows] = chunk
    write_result(run, method.title, rescored, targets, tally)
    run.write_record("environment.json", environment(place, prepared) | {"method_code": job.method.digest})


def _predictions(bases: Sequence[Record]) -> tuple[list[Tensor], Tensor]:
    """Return the test scores [N, K] of each base, and their targets [N]."""
    try:
        read = [tuple(map(torch.from_numpy, base.predictions())) for base in bases]
    except ValueError as error:
        raise UserError(f"{error}; the same command computes them again") from None
    (first, targets), *others = read
    for base, (scores, its_targets) in zip(bases[1:], others, strict=True):
        if scores.shape != first.shape or not torch.equal(its_targets, targets):
            names = f"{bases[0].folder.name[:12]} and {base.folder.name[:12]}"
            raise UserError(f"the predictions of runs {names} are not of the same examples; remove one of the folders")
    return [scores for scores, _ in read], targets


def rescored_chunks(
    posthoc: PostHoc, scores: Tensor | Sequence[Tensor], targets: Tensor, device: torch.device
) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """Yield rows, re-ranked scores and targets of one chunk after another, on the device.

    The softmax is taken in float64, so that classes tie only where the bases' scores do. The scores [N, K] of the base,
    or of each base, and the targets [N] may be anywhere; one chunk of them is on the device at a time.
    """
    each = [scores] if isinstance(scores, Tensor) else scores
    for start in range(0, len(targets), EXAMPLES_PER_CHUNK):
        rows = slice(start, start + EXAMPLES_PER_CHUNK)
        with torch.inference_mode():
            chunk = posthoc.rescore(*(base_scores[rows].to(device).double().softmax(dim=1) for base_scores in each))
        check_shape(chunk, tuple(each[0][rows].shape), f"method {posthoc.name}: the result of rescore")
        yield rows, chunk, targets[rows].to(device)


def _fit(posthoc: PostHoc, job: Job, prepared: Prepared, bases: Sequence[Record], device: torch.device) -> None:
    """Fit a post-hoc method to the bases' probabilities on the validation split; its random numbers are the job's."""
    every = list[Tensor]()
    targets = torch.empty(0)
    for method, base in zip(job.bases, bases, strict=True):
        base_job = Job(base.job, method)
        scores, targets = validation_scores(base_job, prepared, base, posthoc.hierarchy, device)
        every.append(scores.to(device).double().softmax(dim=1))
    torch.manual_seed(seed_for(job.spec.seed, FIT))
    posthoc.fit(*every, targets=targets.to(device))


def validation_scores(
    job: Job, prepared: Prepared, run: Record, hierarchy: Hierarchy, device: torch.device, split: str = "val"
) -> tuple[Tensor, Tensor]:
    """Return the scores [N_val, K] of a finished run on the validation split, and targets [N_val]: one forward pass.

    Of the split "above" the targets are numbers of nodes.

    The model is that of the run's chosen epoch, and on a CPU computes with as many threads as the run did.

    Raises:
        UserError: the checkpoint is missing or damaged, or not of this method.
    """
    content = load_checkpoint(run.folder / "checkpoint.pt")
    if content is None or not content["best"]:
        raise UserError(
            f"validation scores of {job.spec.label} are computed from its checkpoint, which {run.folder} does not have "
            "or is damaged; remove that folder to train it again"
        )
    if not job.method.is_method_of(job.spec):
        raise UserError(f"the file of {job.method.name} has changed since {job.spec.label} was trained")
    index = () if device.index is None else (device.index,)
    fabric = make_fabric(device.type, job.spec.train.precision, index)
    threads = torch.get_num_threads()
    torch.set_num_threads(content["threads"])
    try:
        model = new_classifier(job, hierarchy).to(memory_format=torch.channels_last)
        model.load_state_dict(content["best"])
        model.to(fabric.device)
        return predict(fabric, model, open_split(prepared, split, job.spec, fabric.device))[:2]
    finally:
        torch.set_num_threads(threads)
