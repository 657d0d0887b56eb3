"""Before jobs start, the features of their frozen backbones are extracted here, once for all of them."""

from collections.abc import Sequence

from hierbench.data.features import Wanted
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
        title = f"features of {found.model.backbone}"
        with Meter(title, float(found.num_rows())) as meter:

            def on_rows(done: int, total: int, meter: Meter = meter) -> None:
                meter.part("images and views", done, total)

            obtain_features(found, weights_of(job, setting), setting.device, on_rows)
