"""Training one job in this process, after comparing its data, method and weights with the plan's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from hierbench.data import prepared as data
from hierbench.data.prepared import Prepared
from hierbench.planning.resources import Setting
from hierbench.runs.job import Job
from hierbench.runs.store import Run
from hierbench.utils.errors import UserError
from hierbench.utils.files import file_digest

if TYPE_CHECKING:
    from hierbench.models import Classifier

Report = Callable[[float, int], None]  # epochs done, epochs in all


class StoppedError(Exception):
    """Raised by a `Report`: the job is to stop here; it can be resumed."""


def train_here(job: Job, setting: Setting, run: Run, report: Report, after_epoch: Callable[[], None]) -> None:
    """Train a job in this process, alone or as one of several that share it."""
    from hierbench.training.snapshots import keep_snapshot
    from hierbench.training.trainer import train

    def on_epoch(epoch: int, model: Classifier) -> None:
        after_epoch()
        keep_snapshot(run, setting.snapshots, job.spec.train.epochs, epoch, model)

    train(
        job,
        data_of(job, setting),
        run,
        setting.device,
        report,
        weights=weights_of(job, setting),
        on_epoch=on_epoch,
        gpus=setting.gpus,
        num_ranks=setting.devices,
    )


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


def weights_of(job: Job, setting: Setting) -> Path | None:
    """Return the file of the backbone's weights, after comparing it with the plan's."""
    if job.spec.weights is None:
        return None
    if setting.weights is None or file_digest(setting.weights, follow=True) != job.spec.weights:
        raise UserError(f"{setting.weights} is not the file of weights that this job was planned for")
    return setting.weights
