"""A row of a table, and the recorded request that gives its runs again: shown, or carried out and compared."""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import mkdtemp
from types import SimpleNamespace
from typing import Any, cast

from hierbench.api.registry import InstalledMethods
from hierbench.config.options import Options, Place
from hierbench.config.overrides import flatten, format_override, methods_set
from hierbench.config.recipe import load_recipe
from hierbench.config.spec import Spec
from hierbench.data.prepared import Prepared
from hierbench.execution.plan import check_request, find_methods, make_plan, names_asked
from hierbench.execution.session import Execution, Session
from hierbench.leaderboard.changes import different_keys
from hierbench.leaderboard.columns import PAPER
from hierbench.leaderboard.extra_columns import counted_runs
from hierbench.leaderboard.selection import open_rows
from hierbench.leaderboard.statistics import Row
from hierbench.models.libraries.lookup import resolve_model
from hierbench.runs.job import Job
from hierbench.runs.method_files import kept_source
from hierbench.runs.mlflow_mirror import Mirror
from hierbench.runs.record import Record, Records
from hierbench.runs.record_reader import read_record
from hierbench.runs.requests import Request
from hierbench.studies.comparison import Comparison
from hierbench.studies.retraining import Repetition, compare_runs, recorded_threads
from hierbench.studies.study import carry_out
from hierbench.utils.console import say
from hierbench.utils.errors import UserError


@dataclass(frozen=True)
class RecordedRow:
    """A row of a board, and the request that gives its runs.

    Attributes:
        metrics: that are shown.
        runs: {seed: finished run}.
        specs: {id: spec} of these and of all that they re-rank.
        options: of `hierbench run`; None where no recorded request plans the runs here.
        method_files: sources that were kept with the runs, of methods that are not installed with the code that ran.
        notes: files that are needed, differences, or the reason why there are no options.
    """

    row: Row
    metrics: Sequence[str]
    runs: dict[int, Record]
    specs: dict[str, Spec]
    options: Options | None
    method_files: Sequence[Path]
    notes: list[str]


def find_rows(place: Place, name: str, dataset: str | None) -> list[RecordedRow]:
    """Return the rows that METHOD[:TYPE][:METRIC] names, see `hierbench.leaderboard.selection.open_rows`."""
    dataset, records, rows, metric = open_rows(place, name, dataset)
    return [_recorded_row(row, records, dataset, metric) for row in rows]


def _recorded_row(row: Row, records: Records, dataset: str, metric: str | None) -> RecordedRow:
    """Return a row with its runs and the newest request that plans them."""
    runs, label = counted_runs(row, records), f"{row.method}:{row.type}"
    metrics = [name for name, cell in row.metrics.items() if cell.mean is not None and metric in (None, name)]
    if not runs or not metrics:
        raise UserError(f"{label} has {f'no value of {metric}' if runs else 'no finished runs that count'}")
    specs, method_files, installed = dict[str, Spec](), dict[str, Path](), InstalledMethods()
    for run_id in records.with_bases(run.id for run in runs):
        if (record := records.get(run_id)) is None or (spec := record.spec) is None:
            raise UserError(f"run {run_id[:12]}: its record is missing, or of another version of hierbench")
        specs[run_id] = spec
        if installed.that_ran(spec) is None and (source := kept_source(spec.method.name, spec.method.code, record, [])):
            method_files.setdefault(spec.method.name, source[0])
    run_by_seed = dict(sorted((specs[run.id].seed, run) for run in runs))
    notes = [f"{file} came with the record: read it before it is run" for file in method_files.values()]
    if missing_seeds := sorted(set(range(max(run_by_seed))) - run_by_seed.keys()):
        notes.append(f"the row has no seed {', '.join(map(str, missing_seeds[:9]))}: the command trains these too")
    if num_others := row.planned - len(runs):
        notes.append(f"{num_others} of the row's {row.planned} runs are unfinished or rejected, and not compared")
    options: Options | None = None
    ids = {run.id for run in runs}
    requests = [request for request in records.requests if request.kind == "comparison" and ids.issubset(request.ids)]
    try:
        if not requests:
            raise UserError("no recorded request is of all its runs; what follows is the spec of its first seed")
        options = single_row_options(requests[-1], dataset, max(run_by_seed) + 1, specs, method_files)
        if not method_files:  # whose code is run by --run alone
            check_plan(planned(options, specs[runs[0].id]), specs)
        if options.weights is not None:
            notes.append(f"{options.weights} is the file of weights with SHA-256 {specs[runs[0].id].weights}")
    except (UserError, TypeError, ValueError, AttributeError) as error:  # a received request may say anything
        options = None
        notes.append(f"no command: {error}")
    return RecordedRow(row, metrics, run_by_seed, specs, options, [*method_files.values()], notes)


def single_row_options(
    request: Request, dataset: str, num_seeds: int, specs: Mapping[str, Spec], method_files: Mapping[str, Path]
) -> Options:
    """Return the options of a comparison reduced to one row; its tuned hyperparameters are set."""
    recorded_options, names = request.options, list(dict.fromkeys(spec.method.name for spec in specs.values()))
    spec = next(iter(specs.values()))
    methods = [str(method_files.get(name, name)) for name in names if name == names[0] or name in method_files]
    overrides = [text for text in recorded_options.get("overrides", ()) if {*methods_set(text)} <= {*names, "all"}]
    for name in names:
        for key, value in recorded_options.get("tuned", {}).get(f"{name}:{spec.type}", {}).items():
            overrides.append(format_override(f"methods.{name}.{key}", value))
    if load_recipe(dataset, overrides, spec.protocol).train.precision == "auto":  # as on the machine that ran it
        overrides.append(format_override("train.precision", spec.train.precision))
    weights = Path(recorded_options["weights"]) if "weights" in recorded_options else None
    return Options(dataset, ",".join(methods), spec.type, num_seeds, overrides, spec.protocol, weights=weights)


def planned(options: Options, spec: Spec) -> list[Job]:
    """Return the jobs that options plan on the data and the weights of a spec, which need not be here."""
    of_file = ["model.weights=file"] if spec.model.weights == "file" else []
    session = Session(replace(options, weights=None, overrides=[*options.overrides, *of_file]))
    methods, _ = find_methods(names_asked(options))
    check_request(session.recipe, methods, session.types, options.overrides)
    tree = SimpleNamespace(digest=lambda: spec.dataset.hierarchy)
    data = cast("Prepared", SimpleNamespace(digest=spec.dataset.digest, hierarchy=lambda distance: tree))
    return make_plan(resolve_model(session.recipe), data, methods, session.types, session.num_seeds, spec.weights)


def check_plan(plan: Sequence[Job], specs: Mapping[str, Spec]) -> None:
    """Raise a UserError that names the settings of the first recorded run that a plan lacks."""
    for spec in (specs[run_id] for run_id in specs if run_id not in {job.id: job for job in plan}):
        other = next((job.spec for job in plan if job.spec.label == spec.label), None)
        if other is None:
            raise UserError(f"its request does not plan {spec.label} here")
        planned_here, recorded = (dict(flatten(settings.content())) for settings in (other, spec))
        keys = different_keys(recorded, planned_here) or ["base"]
        differ = "; ".join(f"{key} was {recorded.get(key)} and is {planned_here.get(key)} here" for key in keys[:3])
        raise UserError(f"its request plans another run in place of {spec.label}: {differ}")


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
    folder, agree = Path(mkdtemp(prefix="hierbench-reproduce-")) if runs is None else runs, False
    try:
        for line in carry_out(Reproduction(row), replace(row.options, mlflow="off", runs=folder, **again)).lines:
            say(line)
        repetitions = {seed: compare_runs(run, read_record(folder / run.id)) for seed, run in row.runs.items()}
        agree = all(repetition.agrees for repetition in repetitions.values())
    finally:
        if runs is None and (agree or not any(folder.iterdir())):
            shutil.rmtree(folder)
    return repetitions, [] if runs is None and agree else [f"the new runs are in {folder}"]


class Reproduction(Comparison):
    """The runs of a row, and no others."""

    kind = None

    def __init__(self, row: RecordedRow) -> None:
        super().__init__(PAPER, False, None)
        self.row = row

    def plan(self, session: Session) -> list[Job]:
        """Return the jobs of the row; a UserError where data, weights or code are not those of the record."""
        spec = next(iter(self.row.specs.values()))
        digest, recorded = session.inputs.digest or "none", spec.weights or "none"
        if digest != recorded:
            problem = f"the weights here are {digest[:12]} (SHA-256), and the record's {recorded[:12]}"
            raise UserError(f"{problem}: give --weights FILE")
        plan = super().plan(session)
        check_plan(plan, self.row.specs)
        return [job for job in plan if job.id in self.row.specs]

    def steps(self, session: Session, plan: list[Job], execution: Execution) -> Iterator[list[Job]]:
        """Compute with as many threads as the record says: results are rounded on a CPU as their number says."""
        if execution.setting.device == "cpu" and (threads := recorded_threads(next(iter(self.row.runs.values())))):
            execution.setting = replace(execution.setting, threads=threads)
        yield from super().steps(session, plan, execution)

    def table(self, session: Session, mirror: Mirror | None) -> None:
        """Return nothing: runs are compared, and not ranked."""
