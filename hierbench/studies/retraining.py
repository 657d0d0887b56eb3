"""Recorded runs trained again by their request, and compared: the runs of a row, or a random sample."""

import math
import random
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any, Literal

from hierbench.config.options import Options
from hierbench.config.recipe import recipe_names
from hierbench.config.spec import Spec
from hierbench.data.prepared import find_for_spec
from hierbench.execution.execution import Batch, Execution
from hierbench.execution.jobs import find_methods, requested_methods
from hierbench.execution.request import requested_recipe, resolve
from hierbench.execution.resources import choose_device
from hierbench.leaderboard.row_checks import same_environment
from hierbench.runs.integrity import PREDICTIONS
from hierbench.runs.record import Record
from hierbench.runs.record_reader import read_record
from hierbench.runs.records import Records
from hierbench.runs.run_check import RunCheck
from hierbench.runs.state import State
from hierbench.studies.comparison import plan_comparison
from hierbench.studies.dry_run import announce
from hierbench.studies.reproduction import RecordedRow, check_plan, recorded_options, specs_with_bases
from hierbench.utils.console import say
from hierbench.utils.errors import UserError

POINTS = 2.0  # of top-1 between two machines, beside three standard errors of a difference of proportions
DISTANCE_SHARE = 0.1  # of a distance, likewise


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
    old = run.environment
    new = again.environment
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
    return abs(recorded - new) <= (DISTANCE_SHARE + 3.0 / math.sqrt(num)) * max(recorded, new)


def retrain(specs: Mapping[str, Spec], record: Record, options: Options) -> None:
    """Train the runs of recorded specs {id: spec} again, by the request that plans them.

    On a CPU they have as many threads as the record says: results are rounded as their number says.

    Args:
        specs: of runs and of all that they re-rank.
        record: one of them.
        options: of the request, with the folder of the new runs.

    Raises:
        UserError: data, weights or code are not those of the record.
    """
    options = replace(options, mlflow="off")
    recipe = requested_recipe(options)
    methods, _ = find_methods(requested_methods(options))
    plan = plan_comparison(resolve(options, recipe, methods), methods)
    check_plan(plan.jobs, specs)
    setting = plan.setting
    threads = record.environment.get("threads")
    if setting.device == record.environment.get("device") == "cpu" and type(threads) is int and threads > 0:
        setting = replace(setting, threads=threads)
    recorded = [line for line in plan.planned if line.job is not None and line.job.id in specs]
    plan = replace(plan, planned=recorded, setting=setting)
    announce(plan)
    with redirect_stdout(sys.stderr), Execution(plan) as execution:  # a method may print
        execution.expect_plan()
        execution.run(Batch(plan.jobs, plan.labels))
    for line in execution.describe_failures():
        say(line)


def repeat(row: RecordedRow, runs: Path | None, again: dict[str, Any]) -> tuple[dict[int, Repetition], list[str]]:
    """Run the request of a row in another runs folder; return {seed: how it compares}, and notes.

    Args:
        row: with options.
        runs: None for a folder of its own, which is removed if every seed agrees, and otherwise named in the notes.
        again: fields of `Options`: data_dir, device, jobs, weights, source.

    Raises:
        UserError: the runs folder is that of the records; or data, weights or code are not those of the record.
    """
    if row.options is None:
        raise UserError(f"{row.row.method}:{row.row.type}: {row.notes[-1]}")
    if runs is not None and runs.resolve() in {run.folder.resolve().parent for run in row.runs.values()}:
        raise UserError(f"--runs {runs} holds the records themselves; give another folder")
    for file in row.method_files:
        say(f"note: running {file}, which came with the record")
    folder = Path(mkdtemp(prefix="hierbench-reproduce-")) if runs is None else runs
    agree = False
    try:
        retrain(row.specs, next(iter(row.runs.values())), replace(row.options, runs=folder, **again))
        repetitions = {seed: compare_runs(run, read_record(folder / run.id)) for seed, run in row.runs.items()}
        agree = all(repetition.agrees for repetition in repetitions.values())
    finally:
        if runs is None and (agree or not any(folder.iterdir())):
            shutil.rmtree(folder)
    return repetitions, [] if runs is None and agree else [f"the new runs are in {folder}"]


def train_again(records: Records, runs: Sequence[RunCheck], num: int, again: dict[str, Any]) -> None:
    """Train `num` runs, drawn at random, and their bases again in a temporary folder, and write down the outcome.

    Only installed methods are run, never code that came with a record. Runs that cannot be trained here keep their
    state, and a note says why.

    Args:
        records: of a folder.
        runs: of the folder, checked.
        num: of runs.
        again: fields of `Options`: data_dir, device, weights.

    Raises:
        UserError: no run can be trained here, or there is no such device.
    """
    choose_device(again["device"])
    trained = 0
    reason = "none has a result"
    checks = {check.id: check for check in runs}
    candidates = [check for check in runs if check.is_tested and not check.rejected]
    with TemporaryDirectory(prefix="hierbench-verify-") as folder:  # re-ranked runs find their bases in it
        for check in random.SystemRandom().sample(candidates, len(candidates)):
            try:
                specs = specs_with_bases(records, [check.record])
                data = check.dataset
                prepared = find_for_spec(data, again["data_dir"])
                if prepared is None or prepared.digest != data.digest:
                    raise UserError(f"its data, {data.name}, is not prepared in {again['data_dir']}")
                dataset = data.name if data.name in recipe_names() else f"./{data.name}.toml"
                options = replace(recorded_options(records, [check.record], specs, dataset, {}), **again)
                weights = again["weights"] if specs[check.id].weights else None
                retrain(specs, check.record, replace(options, runs=Path(folder), weights=weights))
            except UserError as error:
                reason = str(error)
                check.note(f"not trained again: {reason}")
                continue
            for run_id in specs:
                _write_down(checks[run_id], read_record(Path(folder) / run_id))
            trained = trained + 1
            if trained == num:
                return
    if not trained:
        raise UserError(f"--retrain: no run can be trained again here: {reason}")


def _write_down(check: RunCheck, new: Record) -> None:
    """Write down how a run compares with its repetition."""
    again = compare_runs(check.record, new)
    place = f"in {'the same' if again.same else 'another'} environment"
    if again.verdict == "failed":
        check.note(f"not trained again: {new.status.get('error') or 'it did not end'}")
    elif again.verdict == "differs":
        values = [f"{name} is {old}, trained again {new}" for name, (old, new) in again.metrics.items() if old != new]
        check.reject(f"trained again {place}: {'; '.join(values) or 'its predictions are not bitwise the same'}")
    else:
        check.confirm(State.RETRAINED)
        remark = ": bitwise the same" if again.verdict == "bitwise" else f" {place}: within tolerance, not bitwise"
        check.note(f"trained again{remark}")
