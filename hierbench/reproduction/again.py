"""Carrying out the command of a row in a folder of its own, and comparing the results."""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Literal

from hierbench.config.options import Options
from hierbench.execution.scheduler import states
from hierbench.execution.session import Session
from hierbench.leaderboard.measured import measure
from hierbench.leaderboard.statistics import METRICS
from hierbench.planning.dry_run import lines_of_plan, parameters_of
from hierbench.planning.plan import find_methods, make_plan, names_asked, with_bases
from hierbench.records.reading import read_records
from hierbench.records.record import Record
from hierbench.reproduction.command import options_of
from hierbench.reproduction.retrain import is_close
from hierbench.reproduction.rows import Recorded, passed
from hierbench.runs.integrity import PREDICTIONS
from hierbench.runs.mlflow_mirror import Mirror
from hierbench.speed.announce import announce
from hierbench.utils.console import say
from hierbench.utils.errors import UserError
from hierbench.utils.files import write_json

Verdict = Literal["bitwise", "close", "differs", "failed"]


@dataclass(frozen=True)
class Compared:
    """One seed of a row, recorded and again.

    Attributes:
        verdict: "bitwise" the same predictions and metrics, "close" within the tolerance for another machine, or not.
        metrics: {name: (recorded, again)}; None for a severity without mistakes.
    """

    seed: int
    verdict: Verdict
    metrics: dict[str, tuple[float | None, float | None]]


def carry_out(found: Recorded, runs: Path | None, again: dict[str, Any]) -> tuple[list[Compared], list[str]]:
    """Carry out the command of a row in another runs folder, and compare seed by seed; other seeds are not trained.

    On a CPU the jobs compute with as many threads as the record says, because results are rounded as their number says.

    Args:
        found: the row.
        runs: None for a folder of its own, which is removed if every seed agrees, and otherwise named in the notes.
        again: fields of `Options`: data_dir, device, jobs, weights, source.

    Raises:
        UserError: the runs folder is that of the records; or data, weights or code are not those of the record.
    """
    folder = Path(mkdtemp(prefix="hierbench-reproduce-")) if runs is None else runs
    agree = False
    try:
        if folder.resolve() == found.records.root.resolve():
            raise UserError(f"--runs {runs} holds the records themselves; give another folder")
        compared = _run_again(found, options_of(found.command, mlflow="off", runs=folder, **again))
        agree = all(seed.verdict in ("bitwise", "close") for seed in compared)
    finally:
        if runs is None and (agree or not any(folder.iterdir())):
            shutil.rmtree(folder)
    return compared, [] if runs is None and agree else [f"the new runs are in {folder}"]


def _run_again(found: Recorded, asked: Options) -> list[Compared]:
    session = Session(replace(asked, methods=_with_copies(found, asked)))
    methods, _ = find_methods(names_asked(session.options))
    inputs, spec = session.open(methods), found.spec
    assert inputs.prepared is not None
    if inputs.prepared.digest != spec.dataset.digest:
        raise UserError(
            f"{spec.dataset.name} is prepared in {asked.data_dir} with digest {inputs.prepared.digest[:12]}, and the "
            f"record's is {spec.dataset.digest[:12]}: other images, splits or classes give other runs"
        )
    if inputs.digest != spec.weights:
        here, there = ("none" if digest is None else digest[:12] for digest in (inputs.digest, spec.weights))
        raise UserError(
            f"the backbone's weights here are {here} (SHA-256), and the record's {there}: give --weights FILE"
        )
    plan = make_plan(session.recipe, inputs.prepared, methods, session.types, session.num_seeds, inputs.digest)
    if lacking := found.specs.keys() - {job.id for job in plan}:
        labels = sorted(found.specs[id_].label for id_ in lacking)
        raise UserError(f"the command does not give {labels[0]}: hyperparameters or versions of its method differ here")
    plan = [job for job in plan if job.id in found.specs]
    trained = list(with_bases(methods).values())
    lines = lines_of_plan(plan, states(plan, session.store))
    announce(session, lines, partial(parameters_of, session.recipe, trained, session.types))
    threads = next(iter(found.runs.values())).environment.get("threads")
    if session.setting.device == "cpu" and type(threads) is int and threads > 0:
        session.setting = replace(session.setting, threads=threads)
    labels_of = {job.id: job.spec.label for job in plan}

    def compare(mirror: Mirror) -> list[Compared]:
        compared = compare_runs(found, session.options.runs, session.options.data_dir)
        file = session.options.runs / f"reproduction-{found.row.method}-{found.row.type}.json"
        write_json(file, {"command": found.command, "seeds": list(map(vars, compared))})
        mirror.attach(file)
        return compared

    compared, failures = session.carry_out(plan, "reproduce", labels_of, compare)
    for line in failures:
        say(line)
    return compared


def _with_copies(found: Recorded, asked: Options) -> str:
    """Return --methods with copies of kept files beside the runs, named as their methods."""
    names = names_asked(asked)
    for name, file in found.files.items():
        say(f"note: running {file}, which came with the record")
        if file.stem != name:
            copy = Path(asked.runs) / "methods" / f"{name}.py"
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copy, follow_symlinks=False)
            names = [str(copy) if given == passed(name, file) else given for given in names]
    return ",".join(names)


def compare_runs(found: Recorded, folder: Path, data_dir: Path) -> list[Compared]:
    """Compare the runs of a row with those of the same ids in another folder."""
    again = read_records(folder, [run.id for run in found.runs.values()])
    names = [name for name in found.metrics if name not in METRICS]
    compared = []
    for seed, run in found.runs.items():
        other = again.get(run.id)
        if other is None or not other.done:
            compared.append(Compared(seed, "failed", {}))
            continue
        old, new = (
            {**one.metrics, **measure([one], names, records, data_dir)[one.id]}
            for one, records in ((run, found.records), (other, again))
        )
        metrics = {name: (old.get(name), new.get(name)) for name in found.metrics}
        compared.append(Compared(seed, _verdict(run, other, metrics), metrics))
    return compared


def _verdict(run: Record, other: Record, metrics: Mapping[str, tuple[float | None, float | None]]) -> Verdict:
    same = run.digest_of(PREDICTIONS) == other.digest_of(PREDICTIONS) is not None
    if same and all(one == two or (one != one and two != two) for one, two in metrics.values()):
        return "bitwise"
    num = int(other.environment["data"]["splits"].get("test", 1))
    return "close" if all(is_close(name, *pair, num) for name, pair in metrics.items()) else "differs"
