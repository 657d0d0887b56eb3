"""The inputs of a job: data, file of weights and features of a frozen backbone, compared with the plan's.

Features are extracted before jobs start, once for all of them.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from hierbench.data import prepared as data
from hierbench.data.feature_cache import CacheRequest, Features, check_features, find_features
from hierbench.data.prepared import Prepared
from hierbench.execution.resources import Setting
from hierbench.runs.job import Job
from hierbench.runs.repair import Note, is_finished
from hierbench.training.feature_extraction import OnRows, obtain_features
from hierbench.utils.console import LINE_EVERY, Meter, throttled
from hierbench.utils.errors import UserError
from hierbench.utils.files import file_digest


def open_weights(job: Job, setting: Setting) -> Path | None:
    """Return the file of weights that a job starts from, after comparing it with the plan's; None for random ones."""
    weights = setting.weights
    if job.spec.weights is None:
        return None
    if weights is None or file_digest(weights, follow=True) != job.spec.weights:
        raise UserError(f"{weights} is not the file of weights that this job was planned for")
    return weights


def open_data(job: Job, setting: Setting) -> Prepared:
    """Return the job's dataset, after comparing data and method with the plan's."""
    if not job.method.is_method_of(job.spec):
        raise UserError(f"the file of {job.method.name} has changed since the plan; run the command again")
    dataset = data.find_for_spec(job.spec.dataset, setting.data_dir)
    if dataset is None or dataset.digest != job.spec.dataset.digest:
        raise UserError(f"{job.spec.dataset.name} in {setting.data_dir} is not the data this job was planned for")
    data.check(dataset)
    return dataset


def extract_features(jobs: Sequence[Job], setting: Setting) -> None:
    """Extract the features that the unfinished jobs need and that are not cached, with progress.

    Raises:
        UserError: see `hierbench.training.feature_extraction.obtain_features`.
    """
    requests = {
        request.key: (request, job)
        for job in jobs
        if job.trains
        and job.spec.model.frozen
        and not job.spec.model.given_features
        and not is_finished(job.spec, setting.store)
        for request in [CacheRequest.by_spec(open_data(job, setting), job.spec)]
    }
    for request, job in requests.values():
        is_new = not request.folder.exists()
        with Meter(f"features of {request.model.backbone}", float(request.num_rows())) as meter:
            _obtain(request, job, setting, partial(meter.part, "images and views"))
            if is_new:
                meter.say(f"features of {request.model.backbone} are in {request.folder}")


def cached_features(job: Job, prepared: Prepared, setting: Setting, note: Note) -> Features:
    """Return the cached features that a job with a frozen backbone trains on, extracted on this machine if need be."""
    backbone = job.spec.model.backbone

    def on_rows(done: float, total: int) -> None:
        note(f"{job.spec.label}: extracting {total:,} features of {backbone}, {100 * done / total:.0f}%")

    return _obtain(CacheRequest.by_spec(prepared, job.spec), job, setting, throttled(on_rows, LINE_EVERY))


def _obtain(request: CacheRequest, job: Job, setting: Setting, on_rows: OnRows) -> Features:
    features = find_features(request)
    if features is not None:  # reading the file of weights for its digest can take long
        check_features(features)
        return features
    return obtain_features(request, open_weights(job, setting), setting.device, on_rows)
