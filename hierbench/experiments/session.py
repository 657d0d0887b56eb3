"""What every command that trains shares: options, data and weights, workers, and running a plan under a mirror."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self, TypeVar

from hierbench.config.options import Device, Options
from hierbench.config.pretrained import KNOWN
from hierbench.config.recipe import FeatureType, Recipe
from hierbench.data import prepared as data
from hierbench.data.prepare import NEEDS_SOURCE, prepare
from hierbench.data.prepared import Prepared
from hierbench.data.writer import SPLITS
from hierbench.execution.ray_connection import device_on_cluster
from hierbench.execution.scheduler import run_plan
from hierbench.experiments.publishing import say_notes
from hierbench.models.weights import check_weights, download_weights, find_weights
from hierbench.planning.cost import Cost, stand_in_tree
from hierbench.planning.dry_run import Line, show_dry_run, summary
from hierbench.planning.resources import Setting, choose_device, side_by_side
from hierbench.runs.job import Job
from hierbench.runs.mlflow_mirror import Mirror, default_uri
from hierbench.runs.repair import is_finished
from hierbench.runs.store import Store
from hierbench.training.precision import resolve_precision
from hierbench.utils.console import Meter, duration, say
from hierbench.utils.errors import UserError
from hierbench.utils.files import file_digest

RESCORE_WORK = 0.2  # of an epoch: what re-ranking counts in the progress bar
Result = TypeVar("Result")


def settle(recipe: Recipe, options: Options) -> tuple[Recipe, Options]:
    """Return the recipe and the options with "auto" replaced by the device and the precision it stands for."""
    device = device_of(options)
    precision = resolve_precision(recipe.train.precision, device)
    train = recipe.train.model_copy(update={"precision": precision})
    return recipe.model_copy(update={"train": train}), replace(options, device=device)


def device_of(options: Options) -> Device:
    """Return the device of the jobs, as asked where they run elsewhere; with --executor ray, ask the cluster."""
    if options.executor == "ray" and not options.dry_run:
        return device_on_cluster(options.address, options.device)
    return options.device if options.elsewhere else choose_device(options.device)


@dataclass(frozen=True)
class Inputs:
    """The data and the weights of a recipe.

    Attributes:
        prepared: the dataset, None where a dry run has found anything missing.
        weights: file of the backbone's weights, if the recipe has any.
        digest: its SHA-256.
        missing: what a dry run has not found, and how to get it.
    """

    prepared: Prepared | None
    weights: Path | None = None
    digest: str | None = None
    missing: str = ""


def obtain(recipe: Recipe, options: Options) -> Inputs:
    """Return data and weights, downloaded and prepared if need be; a dry run only looks what is there.

    Raises:
        UserError: something cannot be had.
    """
    variant = data.variant_name(recipe.dataset, recipe.data.jpeg_quality)
    folder, weights, needs_weights = options.data_dir / "weights", None, recipe.model.weights != "none"
    if needs_weights:
        weights = find_weights(recipe.model.weights, folder, options.weights)
    elif options.weights is not None:
        raise UserError("--weights: the recipe starts from none (model.weights = none)")
    prepared = data.find(variant, options.data_dir)
    if options.dry_run:
        missing = []
        if prepared is None:
            protocol = " --protocol authors" if recipe.data.jpeg_quality else ""
            source = " --source FILE" if recipe.dataset in NEEDS_SOURCE else ""
            how = f"hierbench data prepare {recipe.dataset}{protocol}{source}"
            missing.append(f"{variant} is not prepared in {options.data_dir}; run: {how}")
        if needs_weights and weights is None:
            title = KNOWN[recipe.model.weights].title
            missing.append(f"{title} are not in {folder}; a run downloads them, or give --weights FILE")
        if missing:
            return Inputs(None, missing="; ".join(missing))
    else:
        if options.mlflow is None:
            default_uri(options.runs)  # raises where it cannot be written down
        Store(options.runs).writable()
        if prepared is None and recipe.dataset in NEEDS_SOURCE:
            prepare(recipe.dataset, options.data_dir)  # says what to get, before anything is downloaded
        if needs_weights and weights is None:  # before the data, which can take hours
            weights = download_weights(recipe.model.weights, folder)
        elif weights is not None:
            check_weights(recipe.model.weights, weights)
        prepared = prepare_with_progress(recipe.dataset, options.data_dir, jpeg_quality=recipe.data.jpeg_quality)
        with Meter(f"checking {prepared.folder.name}", 1.0) as meter:
            data.check(prepared, lambda share: meter.part("images", share, 1.0))
    return Inputs(prepared, weights, None if weights is None else file_digest(weights, follow=True))


def prepare_with_progress(name: str, data_dir: Path, source: Path | None = None, **how: Any) -> Prepared:
    """Prepare a dataset if need be, with a progress bar; `how` is passed on to `hierbench.data.prepare.prepare`."""
    with Meter(f"preparing {name}", 1.0) as meter:
        prepared = prepare(
            name, data_dir, source, lambda share: meter.part("images", share, 1.0), announce=meter.say, **how
        )
    return prepared


def make_setting(options: Options, num_training: int, **more: Any) -> Setting:
    """Return where and on what a plan runs that has so many jobs to train; `more` are other fields of the setting.

    Jobs that run elsewhere have no workers here (0) and one thread each on a CPU, whatever machine they come to.
    """
    if options.jobs_per_gpu > 1 and options.device != "cuda":
        raise UserError("--jobs-per-gpu is for GPUs; on a CPU there is a job per core, see --jobs")
    if options.jobs_per_gpu > 1 and options.devices > 1:
        raise UserError("--jobs-per-gpu is for jobs that share a GPU, --devices for one that takes several")
    workers, threads = 0, 1 if options.device == "cpu" else None
    if not options.elsewhere:
        workers, threads = side_by_side(num_training, options.device, options.devices, options.jobs_per_gpu)
        if options.jobs is not None:
            threads = max(1, workers * threads // options.jobs) if threads else None
            workers = options.jobs
    return Setting(
        runs=options.runs.resolve(),
        data_dir=options.data_dir.resolve(),
        device=options.device,
        workers=workers,
        threads=threads,
        devices=options.devices,
        jobs_per_gpu=options.jobs_per_gpu,
        executor=options.executor,
        address=options.address,
        **more,
    )


def time_to_train(
    recipe: Recipe, kinds: Sequence[FeatureType], prepared: Prepared | None, setting: Setting, *, measure: bool = True
) -> float | None:
    """Return the seconds that jobs of these types will take, None where that is not known.

    On an accelerator it is measured for a dry run alone: a run would take the device twice. Of jobs that run elsewhere
    (no workers) it is not known.
    """
    if not kinds:
        return 0.0
    if not setting.workers or (setting.device != "cpu" and (setting.device != "cuda" or not measure)):
        return None
    from hierbench.planning.estimate import estimate

    if prepared is None:
        tree = stand_in_tree(recipe.expected.level_sizes)
        sizes = {split: getattr(recipe.expected, split) for split in SPLITS}
    else:
        tree, sizes = prepared.hierarchy(recipe.distance), {split: prepared.size(split) for split in SPLITS}
    try:
        return estimate(recipe, kinds, tree, sizes, setting)
    except RuntimeError:  # a model that does not fit in memory: its jobs will say so
        return None


def announce(
    recipe: Recipe,
    lines: Sequence[Line],
    inputs: Inputs,
    setting: Setting,
    options: Options,
    models: Callable[[], dict[tuple[FeatureType, str], Cost]],
) -> None:
    """Say what will happen and how long it takes, for a dry run also what the models cost."""
    kinds = [line.type for line in lines if line.state == "train" or (line.state == "blocked" and line.trains)]
    seconds = time_to_train(recipe, kinds, inputs.prepared, setting, measure=options.dry_run)
    if options.dry_run:
        show_dry_run(recipe, lines, seconds, models(), options.device, inputs.missing, as_json=options.as_json)
    elif inputs.prepared is not None:
        say_notes(inputs.prepared)
        say(summary(recipe, lines, seconds, options.device, ""))


class Session:
    """The plans of one command, run with progress bars and mirrored under one parent run in MLflow.

    Args:
        setting: where and on what they run.
        options: of the command.
        dataset: its name.
        what: how the parent run is called, before the time.
        work: of all plans, see `work_of`.
    """

    def __init__(self, setting: Setting, options: Options, dataset: str, what: str, work: float) -> None:
        self.setting, self.failed = setting, dict[str, str]()
        self.meter = Meter(dataset, max(work, RESCORE_WORK))
        title = f"{what} {time.strftime('%Y-%m-%d %H:%M:%S')}"
        uri, mirrored = options.mlflow or default_uri(options.runs), Store(options.runs, setting.apart)
        self.mirror = Mirror(
            uri, options.runs, dataset, title, lambda line: self.meter.say(f"warning: {line}"), mirrored
        )
        self._counted: set[str] = set()
        self._status = "KILLED"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.mirror.close(self._status)

    def run(
        self,
        plan: list[Job],
        labels: Mapping[str, str],
        on_end: Callable[[Job], None] = lambda job: None,
        is_over: Callable[[Job], bool] = lambda job: False,
    ) -> None:
        """Run what is not cached, and mirror it; `failed` has {id: error} of what failed.

        Args:
            plan: the jobs.
            labels: {id: what users see}.
            on_end: called when a job has ended, well or not.
            is_over: see `run_plan`.
        """
        self._status = "KILLED"

        def progress(job: Job, done: float, total: int) -> None:
            self.meter.part(labels[job.id], done, total)

        def ended(job: Job, error: str) -> None:
            self.count(job, labels[job.id])
            if error:
                self.meter.say(f"failed: {labels[job.id]}: {error}")
            else:
                run = self.setting.store.run(job.id)
                result, seconds = run.metrics()[job.spec.split], run.status["seconds"]
                severity = "-" if result["mistake_severity"] is None else f"{result['mistake_severity']:.2f}"
                shown = f"top-1 {result['top1']:.2f} %, severity {severity}"
                self.meter.say(f"done: {labels[job.id]}: {shown} ({duration(seconds)})")
            self.mirror.write(job)
            on_end(job)

        with self.meter:
            self.failed |= run_plan(plan, self.setting, progress, ended, self.meter.say, is_over)
            for job in self.mirror.missing(plan):  # what an earlier command could not mirror
                self.mirror.write(job)
        self._status = "FAILED" if self.failed else "FINISHED"

    def count(self, job: Job, label: str) -> None:
        """Count a job as done in the progress bar, once."""
        if job.id not in self._counted:
            self._counted.add(job.id)
            self.meter.end_part(label, work_of(job))


def work_of(job: Job) -> float:
    """Return what a job counts in the progress bar: its epochs."""
    return float(job.spec.train.epochs) if job.trains else RESCORE_WORK


def run_and_mirror(
    plan: list[Job],
    setting: Setting,
    options: Options,
    what: str,
    labels: Mapping[str, str],
    finish: Callable[[], tuple[Result, Path]],
) -> tuple[Result, dict[str, str]]:
    """Run what is not cached with progress, mirror it, and return the result and {id: error} of what failed.

    Args:
        plan: the jobs.
        setting: where and on what they run.
        options: of the command.
        what: how the parent run in MLflow is called, before the time.
        labels: {id: what users see}.
        finish: called when all have ended; returns the result and a file that is attached to the parent run.
    """
    work = sum(work_of(job) for job in plan if not is_finished(job.spec, setting.store))
    with Session(setting, options, plan[0].spec.dataset.name, what, work) as session:
        session.run(plan, labels)
        result, table = finish()  # after the bars have gone: it may have some of its own
        session.mirror.attach(table)
    return result, session.failed


def say_failures(failed: Mapping[str, str], labels: Mapping[str, str], options: Options) -> None:
    """Say at the end again what went wrong, and where more is written about it."""
    for job_id, error in failed.items():
        say(f"failed: {labels[job_id]}: {error} ({options.runs}/{job_id}/status.json)")
