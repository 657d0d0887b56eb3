"""Jobs under any other scheduler: the command line of each planned job, and running one by its id."""

import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from functools import partial
from pathlib import Path

from hierbench.api.method import PostHoc, base_names
from hierbench.api.registry import find_method, is_installed
from hierbench.config.spec import CODE_VERSION, Spec
from hierbench.execution.resources import Setting
from hierbench.execution.run_job import execute_when_free, kept_source
from hierbench.models.weights import find_weights
from hierbench.runs.job import Job
from hierbench.runs.record_reader import read_record
from hierbench.runs.repair import is_finished
from hierbench.runs.store import Run, Store
from hierbench.utils.console import Meter, duration, say
from hierbench.utils.errors import UserError


def job_command(job: Job, setting: Setting) -> list[str]:
    """Return the arguments that run a job wherever the folders are mounted."""
    command = ["hierbench", "job", job.id, "--runs", str(setting.runs), "--data-dir", str(setting.data_dir)]
    command += ["--device", setting.device]
    if setting.devices > 1:
        command += ["--devices", str(setting.devices)]
    for reference in job.references:
        if reference.endswith(".py"):
            command += ["--method", reference]
    if setting.weights is not None and job.trains:
        command += ["--weights", str(setting.weights.resolve())]
    return command


def run_one(name: str, files: Sequence[Path], setting: Setting) -> int:
    """Run the planned job whose id begins with `name`; return 0 if it is done, 1 if it failed or cannot start yet.

    `files` hold its method, and those of its bases, where they are not installed.

    Raises:
        UserError: there is no such job, or not its method or weights.
    """
    run = _find_planned_run(name, setting.store)
    spec = _spec(run)
    weights = setting.weights
    if weights is not None and not weights.is_file():
        raise UserError(f"--weights: no file {weights}")
    if weights is None and spec.weights is not None:
        weights = find_weights(spec.model, setting.data_dir / "weights")
    with redirect_stdout(sys.stderr):  # a method may print
        file_methods = [find_method(str(file.resolve())) for file in files]
        method_by_name = {method.name: method for method in file_methods}
        if spec.method.name not in method_by_name and not is_installed(
            spec.method.name
        ):  # a record must not name code to run
            kept = kept_source(run, spec)
            hint = f"; the file that ran is kept in {kept}: read it before you pass it" if kept.is_file() else ""
            raise UserError(f"unknown method {spec.method.name!r}: a method from a file is given with --method{hint}")
        method = method_by_name.get(spec.method.name) or find_method(spec.method.name)
        posthoc = method.cls if issubclass(method.cls, PostHoc) else None
        names = base_names(posthoc) if posthoc else ()
        for file, file_method in zip(files, file_methods, strict=True):
            if file_method.name not in (method.name, *names):
                raise UserError(f"--method {file} is {file_method.name}; the job is {spec.label}")
        missing = [base for base in names if base not in method_by_name and not is_installed(base)]
        if missing and posthoc and posthoc.needs_validation:
            raise UserError(f"{method.name} needs validation scores of {missing[0]}, whose file is given with --method")
        bases = [method_by_name.get(base) or find_method(base) for base in names if base not in missing]
        return _run(Job(spec, method, bases=tuple(bases)), replace(setting, weights=weights))


def _find_planned_run(beginning: str, store: Store) -> Run:
    """Return the only planned run with this prefix of its id."""
    runs = [run for run in store.runs() if beginning and run.folder.name.startswith(beginning)]
    if not runs:
        see = "see: hierbench run --plan-only"
        raise UserError(f"no job in {store.root} has an id that begins with {beginning!r}; {see}")
    if len(runs) > 1:
        raise UserError(f"{len(runs)} jobs have an id that begins with {beginning!r}; give more of it")
    return runs[0]


def _spec(run: Run) -> Spec:
    """Return the spec of a run if this version of the engine gives the numbers that its id stands for."""
    spec = read_record(run.folder).spec
    if spec is None or spec.code != CODE_VERSION:
        raise UserError(f"job {run.folder.name[:12]} was planned by another version of hierbench")
    return spec


def _run(job: Job, setting: Setting) -> int:
    run = setting.store.run(job.id)
    label = job.spec.label
    missing = [base for base in job.spec.bases if not read_record(setting.store.run(base).folder).done]
    if missing and not is_finished(job.spec, setting.store):
        say(f"{label} takes the predictions of a job that is not done; run first: hierbench job {missing[0]}")
        return 1
    with Meter(label, float(job.spec.train.rounds)) as meter:
        outcome = execute_when_free(job, setting, partial(meter.part, "epochs"), meter.say)
    if outcome.state == "failed":
        say(f"failed: {label}: {outcome.error} ({run.folder}/status.json)")
        return 1
    say(f"done: {label} ({duration(run.status['seconds'])}): {run.folder}/metrics.json")
    return 0
