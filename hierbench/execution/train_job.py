"""Training one job in this process, after comparing its data, method and weights with the plan's."""

import time
from collections.abc import Callable
from pathlib import Path

from hierbench.data import prepared as data
from hierbench.data.features import Features, Wanted, check_features, find_features
from hierbench.data.prepared import Prepared
from hierbench.models import Classifier
from hierbench.planning.resources import Setting
from hierbench.runs.job import Job
from hierbench.runs.store import Run
from hierbench.training import trainer
from hierbench.training.features import obtain_features
from hierbench.training.snapshots import keep_snapshot
from hierbench.utils.console import LINE_EVERY
from hierbench.utils.errors import UserError
from hierbench.utils.files import file_digest

Report = Callable[[float, int], None]  # epochs done, epochs in all


def train_here(job: Job, setting: Setting, run: Run, report: Report, after_epoch: Callable[[], None]) -> None:
    """Train a job in this process, alone or as one of several that share it."""
    prepared = data_of(job, setting)
    weights = None if job.spec.model.frozen else weights_of(job, setting)

    def on_epoch(epoch: int, model: Classifier) -> None:
        after_epoch()
        keep_snapshot(run, setting.snapshots, job.spec.train.epochs, epoch, model)

    trainer.train(job, prepared, run, setting.device, report, weights, on_epoch, setting.gpus, setting.devices)


def weights_of(job: Job, setting: Setting) -> Path | None:
    """Return the file of weights that a job starts from, after comparing it with the plan's; None for random ones."""
    weights = setting.weights
    if job.spec.weights is None:
        return None
    if weights is None or file_digest(weights, follow=True) != job.spec.weights:
        raise UserError(f"{weights} is not the file of weights that this job was planned for")
    return weights


def features_of(job: Job, prepared: Prepared, setting: Setting, note: Callable[[str], None]) -> Features:
    """Return the cached features that a job with a frozen backbone trains on, extracted on this machine if need be."""
    wanted = Wanted.by_spec(prepared, job.spec)
    if (features := find_features(wanted)) is not None:
        check_features(features)
        return features
    note(f"{job.spec.label}: extracting {wanted.num_rows():,} features of {wanted.model.backbone}, or waiting for them")
    said = time.monotonic()

    def on_rows(done: int, total: int) -> None:
        nonlocal said
        if time.monotonic() - said > LINE_EVERY:
            said = time.monotonic()
            note(f"features of {wanted.model.backbone}: {100 * done / total:.0f} %")

    return obtain_features(wanted, weights_of(job, setting), setting.device, on_rows)


def data_of(job: Job, setting: Setting) -> Prepared:
    """Return the job's dataset, after comparing data and method with the plan's."""
    if job.found.code != job.spec.method.code:
        raise UserError(f"the file of {job.found.name} has changed since the plan; run the command again")
    variant = data.variant_name(job.spec.dataset.name, job.spec.dataset.jpeg_quality)
    dataset = data.find(variant, setting.data_dir)
    if dataset is None or dataset.digest != job.spec.dataset.digest:
        raise UserError(f"{job.spec.dataset.name} in {setting.data_dir} is not the data this job was planned for")
    data.check(dataset)
    return dataset
