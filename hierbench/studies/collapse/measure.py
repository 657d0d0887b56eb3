"""Measuring neural collapse: one pass over the training set per snapshot, with the result kept next to it.

Shapes: B batch, N examples, K classes, D features.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, cast, get_args

import torch
from torch import Tensor

from hierbench.config.sections import Collapse
from hierbench.data.loader import Split
from hierbench.hierarchy.label_tree import Hierarchy
from hierbench.models import Classifier
from hierbench.runs.job import Job
from hierbench.runs.store import Run
from hierbench.studies.collapse import metrics
from hierbench.studies.collapse.collapse_curves import Curve, MeasuredFrame, Point
from hierbench.studies.collapse.metrics import Deviation, Form
from hierbench.training.snapshots import kept_epochs, load_snapshot, measured_file, snapshot_file
from hierbench.training.step import new_classifier
from hierbench.utils.console import Meter
from hierbench.utils.errors import UserError
from hierbench.utils.files import read_json_object, write_json

ANGLES = ("features", "classifiers")
MEASURES_VERSION = 1  # raise when a quantity is computed differently, so that older measurements are repeated
Report = Callable[[float], None]  # the fraction of the training set that has been seen
# "features" and "classifiers": {"mean": number, "std": {deviation: number}}; "self_duality": {form: number}
Measured = dict[str, Any]


@torch.inference_mode()
@torch.backends.cudnn.flags(enabled=True, deterministic=True, allow_tf32=False)
def measure(model: Classifier, frame: MeasuredFrame, split: Split, report: Report) -> Measured:
    """Measure a model on a whole split, in evaluation mode, without augmentation and TF32, in one pass over it.

    The penultimate features are the method's input. For an ETF the class means are centred by the mean of all
    features, and the classifier is the linear layer's weight without its bias; for a HAFrame the means are as they
    are, and the classifier is the fixed frame.
    """
    model.eval()
    seen = 0

    def features() -> Iterator[tuple[Tensor, Tensor]]:
        nonlocal seen
        for images, targets in split.eval_batches():
            yield model.features(model.backbone(images)), targets
            seen += len(targets)
            report(seen / len(split))

    num_classes = model.method.hierarchy.num_classes
    statistics = metrics.class_means(features(), num_classes)
    ideal: Tensor | float
    if frame.name == "ETF":
        means = statistics.centred
        weights = model.method.get_parameter("classifier.weight").detach()
        ideal = metrics.etf_similarity(num_classes)
    else:
        means = statistics.means
        weights = model.method.get_buffer("frame")
        ideal = cast(Any, model.method).similarity(torch.arange(num_classes, device=weights.device))
    weights = weights.to(means.device)

    def angles(vectors: Tensor) -> dict[str, Any]:
        both = {deviation: metrics.angular_collapse(vectors, ideal, deviation) for deviation in get_args(Deviation)}
        return {"mean": both["absolute"][0], "std": {deviation: std for deviation, (_, std) in both.items()}}

    return {
        "version": MEASURES_VERSION,
        "features": angles(means),
        "classifiers": angles(weights),
        "self_duality": {form: metrics.self_duality(weights, means, form) for form in get_args(Form)},
    }


def cached_measurements(run: Run, epoch: int) -> Measured | None:
    """Return the measurements of a snapshot, or None if they are missing, damaged or of another version."""
    try:
        measured: Measured = read_json_object(measured_file(run, epoch))
    except (OSError, ValueError):
        return None
    return measured if measured.get("version") == MEASURES_VERSION else None


def to_measure(job: Job, run: Run, every: int) -> list[int]:
    """Return the epochs of unmeasured snapshots."""
    return [epoch for epoch in kept_epochs(every, job.spec.train.epochs) if cached_measurements(run, epoch) is None]


def measure_run(
    job: Job, run: Run, frame: MeasuredFrame, hierarchy: Hierarchy, split: Split, epochs: Sequence[int], meter: Meter
) -> None:
    """Measure some snapshots of a run on the training set and write each result next to its snapshot.

    Raises:
        UserError: a snapshot is damaged, or of another model.
    """
    model = new_classifier(job, hierarchy).to(split.device).to(memory_format=torch.channels_last)
    for epoch in epochs:
        try:
            model.load_state_dict(load_snapshot(run, epoch))
        except RuntimeError:  # tensors of another model
            file = snapshot_file(run, epoch)
            raise UserError(f"{file} is of another model; remove {file.parent} to train it again") from None
        part = f"{job.spec.label} epoch {epoch}"
        content = measure(model, frame, split, partial(meter.part, part, total=1.0))
        meter.end_part(part, 1.0)
        write_json(measured_file(run, epoch), content)


def read_curve(job: Job, run: Run, frame: MeasuredFrame, every: int, settings: Collapse) -> Curve:
    """Return the curve of a measured run, with the quantities of the recipe's switches."""
    points = []
    for epoch in kept_epochs(every, job.spec.train.epochs):
        measured = cached_measurements(run, epoch)
        if measured is None:
            raise UserError(f"{measured_file(run, epoch)} has been removed; run the same command again")
        values = [
            number
            for angle in ANGLES
            for number in (measured[angle]["mean"], measured[angle]["std"][settings.deviation])
        ]
        values.append(measured["self_duality"][settings.self_duality])
        points.append(Point(epoch, *(math.nan if value is None else value for value in values)))  # JSON has no NaN
    return Curve(frame, job.spec.seed, job.id, tuple(points))
