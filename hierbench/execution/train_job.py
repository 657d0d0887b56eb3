"""Training one job in this process, after comparing its data, method and weights with the plan's."""

from collections.abc import Callable

from hierbench.data import prepared as data
from hierbench.data.prepared import Prepared
from hierbench.models import Classifier
from hierbench.planning.resources import Setting
from hierbench.runs.job import Job
from hierbench.runs.store import Run
from hierbench.training import trainer
from hierbench.training.snapshots import keep_snapshot
from hierbench.utils.errors import UserError
from hierbench.utils.files import file_digest

Report = Callable[[float, int], None]  # epochs done, epochs in all


def train_here(job: Job, setting: Setting, run: Run, report: Report, after_epoch: Callable[[], None]) -> None:
    """Train a job in this process, alone or as one of several that share it."""
    prepared, weights = data_of(job, setting), None
    if job.spec.weights is not None:
        weights = setting.weights
        if weights is None or file_digest(weights, follow=True) != job.spec.weights:
            raise UserError(f"{weights} is not the file of weights that this job was planned for")

    def on_epoch(epoch: int, model: Classifier) -> None:
        after_epoch()
        keep_snapshot(run, setting.snapshots, job.spec.train.epochs, epoch, model)

    trainer.train(job, prepared, run, setting.device, report, weights, on_epoch, setting.gpus, setting.devices)


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
