"""A command that trains, from its options to a plan that is run and mirrored in MLflow."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Self

from hierbench.api.registry import LoadedMethod
from hierbench.config.options import Device, Options, is_path
from hierbench.config.recipe import chosen_types, load_recipe, with_weights_file
from hierbench.data.user.user_dataset import with_sizes
from hierbench.execution.inputs import Inputs, obtain
from hierbench.execution.job_inputs import extract_features
from hierbench.execution.plan import check_request
from hierbench.execution.ray_connection import device_on_cluster
from hierbench.execution.resources import Setting, choose_device
from hierbench.execution.run_job import Outcome
from hierbench.execution.scheduler import run_plan
from hierbench.models.libraries.lookup import resolve_model
from hierbench.runs.job import Job
from hierbench.runs.mlflow_mirror import Mirror, default_uri
from hierbench.runs.record import Record
from hierbench.runs.record_reader import read_record
from hierbench.runs.store import HistoryRow, Store
from hierbench.training.fabric import resolve_precision
from hierbench.utils.console import Meter, duration, say
from hierbench.utils.errors import UserError

RESCORE_WORK = 0.2  # of an epoch: the weight of re-ranking in the progress bar
MOST_SEEDS = 1000  # also of a recipe


class Session:
    """The options of a command, resolved: its recipe, its inputs, and where it runs.

    Attributes:
        recipe: of the dataset, with the command's overrides; `open` resolves "auto" in it.
        num_seeds: as requested, or the recipe's.
        inputs: data and weights, after `open`.
        setting: folders and devices of the plan; set when the plan is announced.

    Raises:
        UserError: the options do not fit.
    """

    inputs: Inputs
    setting: Setting

    def __init__(self, options: Options) -> None:
        self.options = options
        recipe = load_recipe(options.dataset, options.overrides, options.protocol)
        self.recipe = with_weights_file(recipe, options.weights)
        self.num_seeds = self.recipe.seeds if options.seeds is None else options.seeds
        if self.num_seeds < 1:
            raise UserError(f"--seeds must be at least 1, got {self.num_seeds}")
        if self.num_seeds > MOST_SEEDS:
            raise UserError(
                f"--seeds {self.num_seeds}: this is the number of seeds, at most {MOST_SEEDS:,}, which begin at 0; "
                "a single seed cannot be chosen"
            )
        self.types = chosen_types(options.types)

    @property
    def store(self) -> Store:
        """The runs."""
        return Store(self.options.runs.resolve())

    def open(self, methods: Sequence[LoadedMethod], *, may_be_closed: bool = False) -> Inputs:
        """Check the request, resolve device and precision, and return data and weights; a dry run may lack them.

        A runs folder that cannot be written is an error unless it `may_be_closed`.
        """
        check_request(self.recipe, methods, self.types, self.options.overrides)
        options = self.options
        if options.executor == "ray" and not options.dry_run:
            device: Device = device_on_cluster(options.address, options.device)
        else:  # jobs that run elsewhere keep the device as asked
            device = options.device if options.remote else choose_device(options.device)
        if device == "cuda" and options.device == "auto" and self.recipe.model.frozen:
            say("note: heads on frozen features train on the GPU; many CPU cores may be faster: --device cpu")
        precision = resolve_precision(self.recipe.train.precision, device, frozen=self.recipe.model.frozen)
        train = self.recipe.train.model_copy(update={"precision": precision})
        self.recipe = resolve_model(self.recipe.model_copy(update={"train": train}))
        self.options = replace(options, device=device)
        self.inputs = obtain(self.recipe, self.options)
        if self.inputs.closed and not may_be_closed:
            raise UserError(self.inputs.closed)
        self.recipe = with_sizes(self.recipe, self.inputs.prepared)
        return self.inputs


class Execution:
    """Plans that are run with progress bars and mirrored under one parent run in MLflow.

    `name` begins the parent run's name, and `failed` has {id: error}.
    """

    def __init__(self, session: Session, name: str) -> None:
        options, setting, dataset = session.options, session.setting, session.recipe.dataset
        self.setting, self.failed = setting, dict[str, str]()
        self.meter = Meter(dataset, 0.0)  # of the expected work in epochs, see `job_work`
        title = f"{name} {time.strftime('%Y-%m-%d %H:%M:%S')}"
        uri, self._store = options.mlflow or default_uri(options.runs), Store(options.runs)
        self.mirror = Mirror(
            uri,
            options.runs,
            dataset,
            title,
            lambda line: self.meter.say(f"warning: {line}"),
            _mirrored_parameters(session),
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
        """Run the jobs that are not cached, and mirror them; `labels` are {id: label}, for the rest see `run_plan`."""
        self._status = "KILLED"

        epochs: dict[str, tuple[str, float, int]] = {}  # of the jobs that are running: label, done, all

        def progress(job: Job, done: float, total: int) -> None:
            epochs[job.id] = labels[job.id], done, total
            self.meter.part(labels[job.id], done, total)

        def ended(job: Job, outcome: Outcome) -> None:
            self.count(job, labels[job.id])
            epochs.pop(job.id, None)
            record = self._record(job)
            if outcome.state == "failed":
                self.meter.say(f"failed: {labels[job.id]}: {outcome.error}")
            else:
                severity = record.metrics["mistake_severity"]
                shown = "-" if severity is None else f"{severity:.2f}"
                result = f"top-1 {record.metrics['top1']:.2f}%, severity {shown} ({duration(record.seconds)})"
                self.meter.say(f"done: {labels[job.id]}: {result}")
            self.mirror.write(record, labels[job.id], _read_history(record))
            on_end(job)

        extract_features(plan, self.setting)
        with self.meter:
            try:
                self.failed |= run_plan(plan, self.setting, progress, ended, self.meter.say, is_over)
            except KeyboardInterrupt:
                for label, done, total in epochs.values():
                    self.meter.say(f"stopped: {label} at epoch {int(done)} of {total}; the same command resumes it")
                raise
            for job in plan:  # runs that an earlier command could not mirror
                if not self.mirror.has(job.id) and (record := self._record(job)).done:
                    self.mirror.write(record, labels[job.id], _read_history(record))
        self._status = "FAILED" if self.failed else "FINISHED"

    def _record(self, job: Job) -> Record:
        return read_record(self._store.run(job.id).folder)

    def count(self, job: Job, label: str) -> None:
        """Count a job as done in the progress bar, once."""
        if job.id not in self._counted:
            self._counted.add(job.id)
            self.meter.end_part(label, job_work(job))


def _read_history(record: Record) -> Sequence[HistoryRow]:
    return record.history() if (record.folder / "history.csv").exists() else ()


def _mirrored_parameters(session: Session) -> dict[str, str]:
    """Return a command's options without folders: a path reveals the user's, and MLflow may be shared."""
    options, overrides = session.options, [override.split("=", 1) for override in session.options.overrides]
    methods = [Path(name).stem if is_path(name) else name for name in options.methods.split(",")]
    return {
        "dataset": session.recipe.dataset,
        "methods": ",".join(methods),
        "types": options.types,
        "seeds": str(session.num_seeds),
        "protocol": session.recipe.protocol,
        "device": options.device,
        **{
            f"set.{key.strip()}": value.rpartition("/")[2] if value.startswith("/") else value
            for key, value in overrides
        },
    }


def job_work(job: Job) -> float:
    """Return the work of a job in the progress bar: its epochs."""
    return float(job.spec.train.epochs) if job.trains else RESCORE_WORK
