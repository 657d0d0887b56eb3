"""Before jobs start, the features of their frozen backbones are extracted here, once for all of them."""

from collections.abc import Sequence

import torch

from hierbench.data.feature_split import FeatureSplit
from hierbench.data.features import Features, Wanted, check_features, find_features
from hierbench.data.loader import Split
from hierbench.data.prepared import Prepared
from hierbench.execution.train_job import data_of, weights_of
from hierbench.planning.resources import Setting
from hierbench.runs.job import Job
from hierbench.runs.repair import is_finished
from hierbench.training.features import obtain_features
from hierbench.utils.console import Meter


def extract_features(plan: Sequence[Job], setting: Setting) -> None:
    """Extract what the unfinished jobs of a plan train on and what is not cached, with progress.

    Jobs on a Ray cluster find or extract it on their node instead.

    Raises:
        UserError: see `hierbench.training.features.obtain_features`.
    """
    if setting.executor == "ray":
        return
    wanted = {
        found.key: (found, job)
        for job in plan
        if job.trains and job.spec.model.frozen and not is_finished(job.spec, setting.store)
        for found in [Wanted.by_spec(data_of(job, setting), job.spec)]
    }
    for found, job in wanted.values():
        _extract(found, job, setting)


def _extract(wanted: Wanted, job: Job, setting: Setting) -> Features:
    if (features := find_features(wanted)) is not None:  # reading the file of weights for its digest can take long
        check_features(features)
        return features
    with Meter(f"features of {wanted.model.backbone}", float(wanted.num_rows())) as meter:

        def on_rows(done: int, total: int) -> None:
            meter.part("images and views", done, total)

        return obtain_features(wanted, weights_of(job, setting), setting.device, on_rows)


def features_without_crops(job: Job, prepared: Prepared, setting: Setting) -> Split:
    """Return the training set of a job with a frozen backbone, to be evaluated: each image itself is its first view.

    Where a job trains on random crops, these features are another cache, extracted if need be.
    """
    spec = job.spec
    if spec.model.views > 2:
        spec = spec.model_copy(update={"model": spec.model.model_copy(update={"views": 1})})
    features = _extract(Wanted.by_spec(prepared, spec), job, setting)
    return FeatureSplit(prepared, features, "train", spec, torch.device(setting.device))
