"""One run compared with its repetition, and runs drawn at random that are trained again in a temporary folder."""

import math
import random
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from hierbench.api.registry import InstalledMethods
from hierbench.config.options import Device
from hierbench.config.spec import CODE_VERSION
from hierbench.data.prepared import find_for_spec
from hierbench.execution.resources import Setting, choose_device
from hierbench.execution.run_job import execute
from hierbench.leaderboard.row_checks import same_environment
from hierbench.models.weights import find_weights
from hierbench.runs.integrity import PREDICTIONS
from hierbench.runs.job import Job
from hierbench.runs.record import Record
from hierbench.runs.record_reader import read_record
from hierbench.runs.run_check import RunCheck
from hierbench.runs.state import State
from hierbench.utils.console import Meter
from hierbench.utils.errors import UserError

POINTS = 2.0  # of top-1 between two machines, beside three standard errors of a difference of proportions
SHARE = 0.1  # of a distance, likewise


@dataclass(frozen=True)
class Repetition:
    """How a run compares with its repetition.

    Attributes:
        verdict: "bitwise" the same predictions and metrics; "close" within the tolerance for another machine, which
            the same machine does not have on a CPU with equal threads; "differs"; or "failed" without a result.
        metrics: {name: (recorded, again)}; None for a severity without mistakes.
        same: whether software and hardware are the same.
    """

    verdict: Literal["bitwise", "close", "differs", "failed"]
    metrics: dict[str, tuple[float | None, float | None]]
    same: bool = False

    @property
    def agrees(self) -> bool:
        """Whether it is the same, bitwise or within tolerance."""
        return self.verdict in ("bitwise", "close")


def compare_runs(run: Record, again: Record) -> Repetition:
    """Compare a run with its repetition."""
    if not again.done:
        return Repetition("failed", {})
    metrics = {name: (run.metrics.get(name), value) for name, value in again.metrics.items()}
    old, new = run.environment, again.environment
    same = same_environment(run, again) and old.get("features") == new.get("features")  # which may be of elsewhere
    if (
        run.recorded_digest(PREDICTIONS) == again.recorded_digest(PREDICTIONS) is not None
        and run.metrics == again.metrics
    ):
        return Repetition("bitwise", metrics, same)
    # On a CPU with equal threads; a GPU does not always take sums in the same order.
    exact = same and old.get("device") == "cpu" and old.get("threads") == new.get("threads") is not None
    num = int(new.get("data", {}).get("splits", {}).get("test", 1))
    close = not exact and all(is_close(name, *pair, num) for name, pair in metrics.items())
    return Repetition("close" if close else "differs", metrics, same)


def is_close(name: str, recorded: float | None, new: float | None, num: int) -> bool:
    """Whether a metric of two trainings on different machines is the same within the stated tolerance.

    top1: two points and three standard errors of the difference of two proportions over `num` examples. Distances:
    a tenth, and three times 1 / sqrt(num) of the value.
    """
    if recorded is None or new is None:
        return recorded is new
    if name == "top1":
        share = (recorded + new) / 200.0
        return abs(recorded - new) <= POINTS + 300.0 * math.sqrt(2.0 * share * (1.0 - share) / num)
    return abs(recorded - new) <= (SHARE + 3.0 / math.sqrt(num)) * max(recorded, new)


def recorded_threads(record: Record) -> int | None:
    """Return the threads that a run on a CPU computed with, as results are rounded as their number says."""
    threads = record.environment.get("threads") if record.environment.get("device") == "cpu" else None
    return threads if type(threads) is int and threads > 0 else None


def train_again(checks: Sequence[RunCheck], num: int, data_dir: Path, device: Device, weights: Path | None) -> None:
    """Train `num` runs, drawn at random, and their bases again in a temporary folder, and write down the outcome.

    Only runs that are not rejected are drawn, and of installed methods whose code is the one that ran: code that came
    with a record is never run. Runs that cannot be trained here keep their state, and a note says why.

    Raises:
        UserError: there is no such run, or no such device.
    """
    methods, by_id = InstalledMethods(), {check.id: check for check in checks}
    jobs = {check.id: job for check in checks if (job := _make_job(check, by_id, methods, data_dir)) is not None}
    setting = Setting(runs=Path(), data_dir=data_dir.resolve(), device=choose_device(device), weights=weights)
    if not jobs:
        needed = f"of installed methods with the code that ran, their data prepared in {data_dir}"
        raise UserError(f"--retrain: no run can be trained again here: {needed}")
    drawn = random.SystemRandom().sample(list(jobs.values()), min(num, len(jobs)))
    with TemporaryDirectory(prefix="hierbench-verify-") as folder:  # where what re-ranks finds its bases
        for run_id in dict.fromkeys(run_id for job in drawn for run_id in (*job.spec.bases, job.id)):
            _train(by_id[run_id], jobs[run_id], replace(setting, runs=Path(folder)))


def _make_job(check: RunCheck, by_id: Mapping[str, RunCheck], methods: InstalledMethods, data_dir: Path) -> Job | None:
    """Return the job of a run, None where it cannot be trained here."""
    spec = check.record.spec
    if spec is None or not check.is_tested or check.rejected or spec.code != CODE_VERSION:
        return None
    bases = [_make_job(by_id[base], by_id, methods, data_dir) for base in spec.bases if base in by_id]
    method, base_methods = methods.that_ran(spec), tuple(base.method for base in bases if base is not None)
    with suppress(UserError):  # damaged data
        prepared = find_for_spec(spec.dataset, data_dir)
        if prepared and prepared.digest == spec.dataset.digest and method and len(base_methods) == len(spec.bases):
            return Job(spec, method, bases=base_methods)
    return None


def _train(check: RunCheck, job: Job, setting: Setting) -> None:
    """Train or re-rank a run, and write down how the result compares."""
    spec, folder = job.spec, setting.data_dir / "weights"
    try:
        weights = None if spec.weights is None else find_weights(spec.model, folder, setting.weights)
    except UserError as error:
        check.note(f"not trained again: {error}")
        return
    setting = replace(setting, threads=recorded_threads(check.record), weights=weights)
    with redirect_stdout(sys.stderr), Meter(f"training {spec.label} again", float(spec.train.epochs)) as meter:
        outcome = execute(job, setting, partial(meter.part, "epochs"), meter.say)
    if outcome.state != "done":
        check.note(f"not trained again: {outcome.error or outcome.state}")
        return
    again = compare_runs(check.record, read_record(setting.runs / job.id))
    place = f"in {'the same' if again.same else 'another'} environment"
    if again.verdict == "differs":
        values = [f"{name} is {old}, trained again {new}" for name, (old, new) in again.metrics.items() if old != new]
        check.reject(f"trained again {place}: {'; '.join(values) or 'its predictions are not bitwise the same'}")
        return
    check.confirm(State.RETRAINED)
    close = f"trained again {place}: within tolerance, not bitwise"
    check.note("trained again: bitwise the same" if again.verdict == "bitwise" else close)
