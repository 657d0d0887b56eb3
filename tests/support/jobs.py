"""Jobs that are planned and trained without a command."""

from hierbench.api.registry import find_method
from hierbench.config.recipe import load_recipe
from hierbench.execution.jobs import make_jobs
from hierbench.execution.run_job import execute
from hierbench.runs.store import Store
from hierbench.training.trainer import train

SMALL = ("train.epochs=2", "train.batch_size=24", "model.backbone=wrn10-1-s4")


class StoppedError(Exception):
    """In place of a kill."""


def stop_at(when):
    """Return a progress report that raises once so many epochs are done."""

    def report(done, total):
        if done >= when:
            raise StoppedError

    return report


def plan_job(prepared, *overrides, method="ce", kind="type-I", protocol="paper"):
    """Return a short job of `shapes`; `method` is a name or a loaded one, and its bases are left out."""
    loaded = find_method(method) if isinstance(method, str) else method
    return make_jobs(load_recipe("shapes", [*SMALL, *overrides], protocol), prepared, [loaded], [kind], 1)[-1]


def train_job(job, prepared, folder, report=lambda done, total: None):
    """Train a job on the CPU, in this process; return its run."""
    run = Store(folder).run(job.id)
    run.plan(job.spec.content())
    train(job, prepared, run, "cpu", report)
    return run


def execute_job(job, setting, report=lambda done, total: None):
    """Carry a job out as a worker does; return its run, which is done."""
    assert execute(job, setting, report).state == "done"
    return setting.store.run(job.id)
