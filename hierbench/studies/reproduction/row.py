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
from hierbench.config.overrides import methods_set, override_of
from hierbench.config.recipe import load_recipe, recipe_names
from hierbench.config.sections import FEATURE_TYPES
from hierbench.config.source import is_dataset_file
from hierbench.config.spec import Spec
from hierbench.data.prepared import Prepared
from hierbench.execution.plan import check_request, find_methods, make_plan, names_asked
from hierbench.execution.session import Execution, Session
from hierbench.leaderboard.columns import PAPER, column_of, further
from hierbench.leaderboard.measured import counted_runs
from hierbench.leaderboard.opening import open_board
from hierbench.leaderboard.paired import named_rows
from hierbench.leaderboard.scored import is_scored_row
from hierbench.leaderboard.statistics import Row
from hierbench.models.libraries.lookup import resolve_model
from hierbench.runs.job import Job
from hierbench.runs.method_files import kept_source
from hierbench.runs.mlflow_mirror import Mirror
from hierbench.runs.reading import read_record, read_records
from hierbench.runs.record import Record, Records
from hierbench.runs.requests import Request
from hierbench.studies.comparison import Comparison
from hierbench.studies.reproduction.retraining import Repetition, compare_runs
from hierbench.studies.study import carry_out as carry_out_study
from hierbench.utils.console import say
from hierbench.utils.errors import UserError


@dataclass(frozen=True)
class RecordedRow:
    """A row, its finished runs and the request that gives them.

    Attributes:
        row: of the board.
        root: the folder of its records.
        runs: {seed: finished run} of the row.
        specs: {id: spec} of these and of all that they re-rank.
        metrics: that are shown.
        options: of `hierbench run`; None where no recorded request plans the runs here.
        files: {method: file that came with the record} of methods that are not installed with the code that ran.
        notes: what has to be had, or differs, or why there are no options.
    """

    row: Row
    root: Path
    runs: dict[int, Record]
    specs: dict[str, Spec]
    metrics: Sequence[str]
    options: Options | None
    files: dict[str, Path]
    notes: list[str]

    @property
    def spec(self) -> Spec:
        """The spec of the first seed."""
        return self.specs[next(iter(self.runs.values())).id]


def find_rows(place: Place, name: str, dataset: str | None) -> list[RecordedRow]:
    """Return the rows of a published table or a runs folder that ROW[:METRIC] names.

    Args:
        place: FOLDER/<dataset> of a published table, its .json or .md, or a runs folder; and data, for a metric that
            has to be computed from predictions.
        name: METHOD[:TYPE][:METRIC].
        dataset: a recipe's name or a user's file; None where all runs are of one recipe that ships.

    Raises:
        UserError: no such folder, row or metric; or several datasets.
    """
    folder = place.runs
    if folder.suffix in (".json", ".md") and not folder.is_dir():
        folder = folder.with_suffix("")
    if not folder.is_dir():
        raise UserError(f"{place.runs}: no such folder of records")
    records = read_records(folder)
    row_name, metric = split_name(name)
    specs = [record.spec for record in records if record.spec is not None]
    if row_name.partition(":")[0] not in {spec.method.name for spec in specs}:
        if any(is_scored_row(text, records) for text in (name, row_name)):
            raise UserError(f"{row_name!r} are predictions made elsewhere and only scored here: it cannot be trained")
    if dataset is None:
        if len(names := sorted({spec.dataset.name for spec in specs})) != 1:
            content = f"runs of {len(names)} datasets ({', '.join(names)})" if names else "no runs of jobs"
            raise UserError(f"{folder} holds {content}; name one with --dataset")
        dataset = names[0]
    if not is_dataset_file(dataset) and dataset not in recipe_names():
        raise UserError(f"{dataset} is not a built-in dataset: give its file, --dataset ./{dataset}.toml")
    columns = [] if metric is None else [column_of(metric)]
    board = open_board(dataset, replace(place, runs=folder), columns if further(columns) else PAPER, apart=False)
    rows = sorted(named_rows(board.rows, row_name), key=lambda row: row.type)
    return [_recorded(row, board.records, dataset, metric) for row in rows]


def split_name(text: str) -> tuple[str, str | None]:
    """Return the row, METHOD or METHOD:TYPE, and the metric of ROW[:METRIC]."""
    method, *rest = text.split(":")
    feature_type = rest.pop(0) if rest and rest[0] in FEATURE_TYPES else ""
    return f"{method}:{feature_type}" if feature_type else method, ":".join(rest) if rest else None


def _recorded(row: Row, records: Records, dataset: str, metric: str | None) -> RecordedRow:
    """Return a row with its records and the newest request that plans them."""
    runs, label = counted_runs(row, records), f"{row.method}:{row.type}"
    if not runs:
        raise UserError(f"{label} has no finished runs that count")
    if metric is not None and (metric not in row.metrics or row.metrics[metric].mean is None):
        raise UserError(f"{label} has no value of {metric}")
    specs = dict[str, Spec]()
    for run_id in records.with_bases(run.id for run in runs):
        if (record := records.get(run_id)) is None or record.spec is None:
            raise UserError(f"run {run_id[:12]}: its record is missing, or of another version of hierbench")
        specs[run_id] = record.spec
    by_seed = {specs[run.id].seed: run for run in runs}
    notes, options = [], None
    files, installed = dict[str, Path](), InstalledMethods()
    for run_id, spec in specs.items():
        kept = kept_source(spec.method.name, spec.method.code, records[run_id], [records.root])
        if kept and installed.that_ran(spec) is None and spec.method.name not in files:
            files[spec.method.name] = kept[0]
            notes.append(f"{kept[0]} came with the record: read it before it is run")
    asked = [one for one in records.requests if one.kind == "comparison" and not {run.id for run in runs} - {*one.ids}]
    try:
        if not asked:
            raise UserError("no recorded request is of all its runs; what follows is the spec of its first seed")
        options = options_of(asked[-1], dataset, max(by_seed), specs, files)
        if not files:  # whose code is run by --run alone
            check_plan(planned(options, specs[runs[0].id]), specs)
    except (UserError, TypeError, ValueError, AttributeError) as error:  # a received request may say anything
        notes.append(f"no command: {error}")
        options = None
    if options is not None and options.weights is not None:
        notes.append(f"{options.weights} is the file of weights with SHA-256 {specs[runs[0].id].weights}")
    if others := sorted(set(range(max(by_seed))) - by_seed.keys()):
        notes.append(f"the row has no seed {', '.join(map(str, others[:9]))}: the command trains these too")
    if row.planned > len(runs):
        rest = row.planned - len(runs)
        notes.append(f"{rest} of the row's {row.planned} runs are unfinished or rejected, and not compared")
    shown = [name for name in row.metrics if row.metrics[name].mean is not None] if metric is None else [metric]
    return RecordedRow(row, records.root, dict(sorted(by_seed.items())), specs, shown, options, files, notes)


def options_of(
    request: Request, dataset: str, last_seed: int, specs: Mapping[str, Spec], files: Mapping[str, Path]
) -> Options:
    """Return what a comparison was asked for, of one row alone; what was tuned then is set."""
    asked, names = request.options, list(dict.fromkeys(spec.method.name for spec in specs.values()))
    spec = next(iter(specs.values()))
    methods = [str(files.get(name, name)) for name in names if name == names[0] or name in files]
    overrides = [text for text in asked.get("overrides", ()) if {*methods_set(text)} <= {*names, "all"}]
    for name in names:
        for key, value in asked.get("tuned", {}).get(f"{name}:{spec.type}", {}).items():
            overrides.append(override_of(f"methods.{name}.{key}", value))
    if load_recipe(dataset, overrides, spec.protocol).train.precision == "auto":
        overrides.append(override_of("train.precision", spec.train.precision))  # as it was on the machine that ran it
    return Options(
        dataset=dataset,
        methods=",".join(methods),
        types=spec.type,
        seeds=last_seed + 1,
        overrides=overrides,
        protocol=spec.protocol,
        weights=Path(asked["weights"]) if "weights" in asked else None,
    )


def planned(options: Options, spec: Spec) -> list[Job]:
    """Return the jobs that options plan on the data and the weights of a spec, which need not be here."""
    session = Session(replace(options, weights=None))
    methods, _ = find_methods(names_asked(options))
    recipe = session.recipe
    if spec.model.weights == "file":
        recipe = recipe.model_copy(update={"model": recipe.model.model_copy(update={"weights": "file"})})
    check_request(recipe, methods, session.types, options.overrides)
    tree = SimpleNamespace(digest=lambda: spec.dataset.hierarchy)
    data = cast("Prepared", SimpleNamespace(digest=spec.dataset.digest, hierarchy=lambda distance: tree))
    return make_plan(resolve_model(recipe), data, methods, session.types, session.num_seeds, spec.weights)


def check_plan(plan: Sequence[Job], specs: Mapping[str, Spec]) -> None:
    """Raise a UserError that names the settings of the first recorded run that a plan lacks."""
    ids = {job.id for job in plan}
    for spec in (spec for run_id, spec in specs.items() if run_id not in ids):
        other = next((job.spec for job in plan if job.spec.label == spec.label), None)
        if other is None:
            raise UserError(f"its request does not plan {spec.label} here")
        here, there = _flat(other.content()), _flat(spec.content())
        keys = [key for key in there | here if there.get(key) != here.get(key) and key != "base"] or ["base"]
        differ = "; ".join(f"{key} was {there.get(key)} and is {here.get(key)} here" for key in keys[:3])
        raise UserError(f"its request plans another run in place of {spec.label}: {differ}")


def _flat(content: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat = dict[str, Any]()
    for key, value in content.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return flat


def carry_out(row: RecordedRow, runs: Path | None, again: dict[str, Any]) -> tuple[dict[int, Repetition], list[str]]:
    """Run the request of a row in another runs folder; return {seed: how it compares}, and notes.

    On a CPU the jobs compute with as many threads as the record says, because results are rounded as their number says.

    Args:
        row: with options.
        runs: None for a folder of its own, which is removed if every seed agrees, and otherwise named in the notes.
        again: fields of `Options`: data_dir, device, jobs, weights, source.

    Raises:
        UserError: the runs folder is that of the records; or data, weights or code are not those of the record.
    """
    if row.options is None:
        raise UserError(f"{row.row.method}:{row.row.type}: {row.notes[-1]}")
    folder = Path(mkdtemp(prefix="hierbench-reproduce-")) if runs is None else runs
    agree = False
    try:
        if folder.resolve() == row.root.resolve():
            raise UserError(f"--runs {runs} holds the records themselves; give another folder")
        compared = _run_again(row, replace(row.options, mlflow="off", runs=folder, **again))
        agree = all(one.agrees for one in compared.values())
    finally:
        if runs is None and (agree or not any(folder.iterdir())):
            shutil.rmtree(folder)
    return compared, [] if runs is None and agree else [f"the new runs are in {folder}"]


def _run_again(row: RecordedRow, options: Options) -> dict[int, Repetition]:
    for name, file in row.files.items():
        say(f"note: running {file}, which came with the record")
        if file.stem != name:  # a method is named as its file
            copy = options.runs / "methods" / f"{name}.py"
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copy, follow_symlinks=False)
            options = replace(options, methods=options.methods.replace(str(file), str(copy)))
    shown = carry_out_study(Again(row), options)
    for line in shown.said:
        say(line)
    return {seed: compare_runs(run, read_record(options.runs / run.id)) for seed, run in row.runs.items()}


class Again(Comparison):
    """The runs of a row, and no others."""

    kind = None

    def __init__(self, row: RecordedRow) -> None:
        super().__init__(PAPER, False, None)
        self.row = row

    def plan(self, session: Session) -> list[Job]:
        """Return the jobs of the row; a UserError where data, weights or code are not those of the record."""
        here, there = session.inputs.digest, self.row.spec.weights
        if here != there:
            names = ("none" if digest is None else digest[:12] for digest in (here, there))
            raise UserError(
                "the weights here are {} (SHA-256), and the record's {}: give --weights FILE".format(*names)
            )
        plan = super().plan(session)
        check_plan(plan, self.row.specs)
        return [job for job in plan if job.id in self.row.specs]

    def steps(self, session: Session, plan: list[Job], execution: Execution) -> Iterator[list[Job]]:
        """Take as many threads as the record says, because results are rounded on a CPU as their number says."""
        threads = next(iter(self.row.runs.values())).environment.get("threads")
        if execution.setting.device == "cpu" and type(threads) is int and threads > 0:
            execution.setting = replace(execution.setting, threads=threads)
        yield from super().steps(session, plan, execution)

    def title(self, session: Session) -> str:
        """Return "reproduce"."""
        return "reproduce"

    def table(self, session: Session, mirror: Mirror | None) -> None:
        """Return nothing: runs are compared, and not ranked."""
