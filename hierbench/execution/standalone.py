"""Jobs under any other scheduler: the command line of each planned job, and running one by its id."""

import json
import shlex
import sys
from contextlib import redirect_stdout
from dataclasses import replace
from functools import partial
from pathlib import Path

from pydantic import ValidationError

from hierbench.api.registry import find_method, method_names
from hierbench.config.spec import CODE_VERSION, Spec
from hierbench.execution.run_job import execute_when_free, kept_source
from hierbench.leaderboard.selection import find_run
from hierbench.models.weights import find_weights
from hierbench.planning.resources import Setting
from hierbench.runs.job import Job, State
from hierbench.runs.repair import is_finished
from hierbench.runs.store import Run
from hierbench.utils.console import Meter, duration, say
from hierbench.utils.errors import UserError


def show_commands(plan: list[Job], state: dict[str, State], setting: Setting, *, as_json: bool) -> None:
    """Print the jobs with their commands on standard output, those that train first."""
    jobs = sorted(plan, key=lambda job: not job.trains)  # stable: otherwise in the order of the plan
    if as_json:
        first = plan[0].spec
        content = {
            "schema": 1,
            "dataset": first.dataset.name,
            "protocol": first.protocol,
            "comparison": first.comparison,
            "jobs": [
                {
                    "id": job.id,
                    "label": job.spec.label,
                    "method": job.spec.method.name,
                    "type": job.spec.type,
                    "seed": job.spec.seed,
                    "state": state[job.id],
                    "after": job.spec.base,
                    "command": command_of(job, setting),
                }
                for job in jobs
            ],
        }
        print(json.dumps(content, indent=1))
        return
    for job in jobs:
        after = f", after {job.spec.base[:12]}" if job.spec.base else ""
        print(f"# {state[job.id]}: {job.spec.label}{after}\n{shlex.join(command_of(job, setting))}")


def command_of(job: Job, setting: Setting) -> list[str]:
    """Return the arguments that run a job wherever the folders are mounted."""
    command = ["hierbench", "job", job.id, "--runs", str(setting.runs), "--data-dir", str(setting.data_dir)]
    command += ["--device", setting.device]
    if setting.devices > 1:
        command += ["--devices", str(setting.devices)]
    if job.found.reference.endswith(".py"):
        command += ["--method", job.found.reference]
    if setting.weights is not None and job.trains:
        command += ["--weights", str(setting.weights.resolve())]
    return command


def run_one(name: str, method: Path | None, setting: Setting) -> int:
    """Run the planned job whose id begins with `name`; return 0 if it is done, 1 if it failed or cannot start yet.

    Raises:
        UserError: there is no such job, or not its method or weights.
    """
    run = find_run(name, setting.store, "job", "; see: hierbench run --plan-only")
    spec, weights = _spec(run), setting.weights
    if weights is not None and not weights.is_file():
        raise UserError(f"--weights: no file {weights}")
    if weights is None and spec.weights is not None:
        weights = find_weights(spec.model, setting.data_dir / "weights")
    if method is None and spec.method.name not in method_names():  # the record may be anyone's: it names no code to run
        kept = kept_source(run, spec)
        there = f"; what ran is kept in {kept}: read it before you give that" if kept.is_file() else ""
        raise UserError(f"unknown method {spec.method.name!r}: a method from a file is given with --method{there}")
    with redirect_stdout(sys.stderr):  # a method may print
        job = Job(spec, find_method(spec.method.name if method is None else str(method.resolve())))
        if job.found.name != spec.method.name:
            raise UserError(f"--method {method} is {job.found.name}; the job is {spec.label}")
        return _run(job, replace(setting, weights=weights))


def _spec(run: Run) -> Spec:
    """Return the spec of a run if this version of the engine gives the numbers that its id stands for."""
    try:
        spec = Spec.model_validate(run.spec())
    except ValidationError:
        spec = None
    if spec is None or spec.code != CODE_VERSION or spec.id != run.folder.name:
        raise UserError(f"job {run.folder.name[:12]} was planned by another version of hierbench")
    return spec


def _run(job: Job, setting: Setting) -> int:
    run, label, base = setting.store.run(job.id), job.spec.label, job.spec.base
    if base is not None and not is_finished(job.spec, setting.store) and not setting.store.run(base).done:
        say(f"{label} takes the predictions of a job that is not done; run first: hierbench job {base}")
        return 1
    with Meter(label, float(job.spec.train.epochs)) as meter:
        outcome = execute_when_free(job, setting, partial(meter.part, "epochs"), meter.say)
    if outcome.state == "failed":
        say(f"failed: {label}: {outcome.error} ({run.folder}/status.json)")
        return 1
    say(f"done: {label} ({duration(run.status['seconds'])}): {run.folder}/metrics.json")
    return 0
