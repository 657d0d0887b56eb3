"""A row of a table, and the options of the recorded request that gives its runs again."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

from hierbench.api.registry import InstalledMethods
from hierbench.config.options import Options, RunSelection
from hierbench.config.overrides import flatten, format_override, methods_set
from hierbench.config.recipe import chosen_types, load_recipe, recipe_names
from hierbench.config.recipe_source import is_dataset_file
from hierbench.config.sections import FEATURE_TYPES
from hierbench.config.spec import Spec
from hierbench.data.prepared import Prepared
from hierbench.execution.jobs import check_request, find_methods, make_jobs, requested_methods
from hierbench.execution.request import requested_recipe, requested_seeds
from hierbench.leaderboard.changes import different_keys
from hierbench.leaderboard.columns import PAPER_COLUMNS, find_column, further_names
from hierbench.leaderboard.extra_columns import counted_runs
from hierbench.leaderboard.open_board import open_board
from hierbench.leaderboard.paired import named_rows
from hierbench.leaderboard.scored_rows import is_scored_row
from hierbench.leaderboard.statistics import Row
from hierbench.models.libraries.lookup import resolve_model
from hierbench.runs.job import Job
from hierbench.runs.method_files import kept_source, source_folders
from hierbench.runs.record import Record
from hierbench.runs.record_reader import read_records
from hierbench.runs.records import Records
from hierbench.utils.errors import UserError
from hierbench.utils.text import is_path, one_line

PINNED = ("torch", "torchvision", "numpy", "scipy", "lightning-fabric", "timm")  # that numbers may depend on
VERSION_NUMBER = re.compile(r"[0-9][0-9A-Za-z.!-]{0,40}")


@dataclass(frozen=True)
class RecordedRow:
    """A row of a board, and the request that gives its runs.

    Attributes:
        metrics: that are shown.
        runs: {seed: finished run}.
        specs: {id: spec} of these and of all that they re-rank.
        codes: {method: digest of its code as it ran}.
        options: of `hierbench run`; None where no recorded request plans the runs here.
        method_files: sources that were kept with the runs, of methods that are not installed with the code that ran.
        notes: files that are needed, differences, or the reason why there are no options.
    """

    row: Row
    metrics: Sequence[str]
    runs: dict[int, Record]
    specs: dict[str, Spec]
    codes: dict[str, str]
    options: Options | None
    method_files: Sequence[Path]
    notes: list[str]


def find_rows(selection: RunSelection, name: str, dataset: str | None) -> list[RecordedRow]:
    """Return the rows that METHOD[:TYPE][:METRIC] names.

    Args:
        selection: a runs folder, or a published table: the folder of its records, or the .json or .md beside it.
        name: of rows that can be trained.
        dataset: a recipe's name or file; None where all runs are of one recipe that ships.

    Raises:
        UserError: no such folder, row or metric; or several datasets.
    """
    folder = selection.runs.with_suffix("") if selection.runs.suffix in (".json", ".md") else selection.runs
    if not folder.is_dir():
        raise UserError(f"{selection.runs}: no such folder of records")
    records = read_records(folder)
    row_name, metric = split_name(name)
    specs = [record.spec for record in records if record.spec is not None]
    if row_name.partition(":")[0] not in {spec.method.name for spec in specs}:
        if any(is_scored_row(text, records) for text in (name, row_name)):
            raise UserError(f"{row_name!r} are predictions made elsewhere and only scored here: it cannot be trained")
    if dataset is None:
        names = sorted({spec.dataset.name for spec in specs})
        if len(names) != 1:
            content = f"runs of {len(names)} datasets ({', '.join(names)})" if names else "no runs of jobs"
            raise UserError(f"{folder} holds {content}; name one with --dataset")
        dataset = names[0]
    if not is_dataset_file(dataset) and dataset not in recipe_names():
        raise UserError(f"{dataset} is not a built-in dataset: give its file, --dataset ./{dataset}.toml")
    columns = [] if metric is None else [find_column(metric)]
    board = open_board(
        dataset,
        replace(selection, runs=folder),
        columns if further_names(columns) else PAPER_COLUMNS,
        with_unranked=False,
    )
    rows = sorted(named_rows(board.rows, row_name), key=lambda row: row.type)
    return [_recorded_row(row, board.records, dataset, metric) for row in rows]


def split_name(text: str) -> tuple[str, str | None]:
    """Return the row, METHOD or METHOD:TYPE, and the metric of METHOD[:TYPE][:METRIC]."""
    method, *rest = text.split(":")
    feature_type = rest.pop(0) if rest and rest[0] in FEATURE_TYPES else ""
    return f"{method}:{feature_type}" if feature_type else method, ":".join(rest) if rest else None


def _recorded_row(row: Row, records: Records, dataset: str, metric: str | None) -> RecordedRow:
    """Return a row with its runs and the newest request that plans them."""
    runs = counted_runs(row, records)
    label = f"{row.method}:{row.type}"
    metrics = [name for name, cell in row.metrics.items() if cell.mean is not None and metric in (None, name)]
    if not runs or not metrics:
        raise UserError(f"{label} has {f'no value of {metric}' if runs else 'no finished runs that count'}")
    specs = specs_with_bases(records, runs)
    method_files = dict[str, Path]()
    installed = InstalledMethods()
    for run_id, spec in specs.items():
        if installed.matching(spec) is None:
            source = kept_source(records[run_id], source_folders(records.root))
            if source:
                method_files.setdefault(spec.method.name, source[0])
    run_by_seed = dict(sorted((specs[run.id].seed, run) for run in runs))
    notes = [f"{file} came with the record: read it before it is run" for file in method_files.values()]
    missing_seeds = sorted(set(range(max(run_by_seed))) - run_by_seed.keys())
    if missing_seeds:
        notes.append(f"the row has no seed {', '.join(map(str, missing_seeds[:9]))}: the command trains these too")
    num_others = row.planned - len(runs)
    if num_others:
        notes.append(f"{num_others} of the row's {row.planned} runs are unfinished or rejected, and not compared")
    options: Options | None = None
    try:
        options = recorded_options(records, runs, specs, dataset, method_files)
        if options.weights is not None:
            notes.append(f"{options.weights} is the file of weights with SHA-256 {specs[runs[0].id].weights}")
    except UserError as error:
        notes.append(f"no command: {error}")
    codes = {spec.method.name: records[run_id].method_digest for run_id, spec in specs.items()}
    return RecordedRow(row, metrics, run_by_seed, specs, codes, options, [*method_files.values()], notes)


def constraints(rows: Sequence[RecordedRow]) -> str:
    """Return the versions of the packages that the runs of rows had, as a file for `pip install -c`.

    Raises:
        UserError: they had several versions, or none is recorded.
    """
    environments = [run.environment for row in rows for run in row.runs.values()]
    lines = []
    for name in PINNED:
        # "2.15.0+cu126" names a build, which other indices do not have.
        versions = {str(values[name]).partition("+")[0] for values in environments if name in values}
        if len(versions) > 1:
            raise UserError(f"the runs had several versions of {name}: {', '.join(sorted(versions))}; choose a row")
        lines += [f"{name}=={version}" for version in versions if VERSION_NUMBER.fullmatch(version)]
    if not lines:
        raise UserError("no version of a package is recorded with these runs")
    labels = ", ".join(f"{row.row.method}:{row.row.type}" for row in rows)
    described = [
        f"{name} {one_line(value, 60)}"
        for name in ("python", "hierbench", "commit")
        for value in dict.fromkeys(str(values[name]) for values in environments if name in values)
    ]
    return "\n".join([f"# {labels} ran with {', '.join(described)}", *lines, ""])


def specs_with_bases(records: Records, runs: Iterable[Record]) -> dict[str, Spec]:
    """Return {id: spec} of runs and their bases; a UserError where one is missing."""
    specs = dict[str, Spec]()
    for run_id in records.with_bases(run.id for run in runs):
        record = records.get(run_id)
        if record is None or record.spec is None:
            raise UserError(f"run {run_id[:12]}: its record is missing, or of another version of hierbench")
        specs[run_id] = record.spec
    return specs


def recorded_options(
    records: Records, runs: Sequence[Record], specs: Mapping[str, Spec], dataset: str, method_files: Mapping[str, Path]
) -> Options:
    """Return the options of the newest comparison that asked for the runs of a row, reduced to that row.

    Raises:
        UserError: it is missing, or plans other runs here. Methods that came with the record are not imported, and
            plans of theirs not checked.
    """
    ids = {run.id for run in runs}
    num_seeds = 1 + max(specs[run.id].seed for run in runs)
    comparisons = [request for request in records.requests if request.kind == "comparison" and ids <= {*request.ids}]
    if not comparisons:
        raise UserError("no recorded request is of all its runs")
    recorded = comparisons[-1].options
    spec = specs[runs[0].id]
    names = list(dict.fromkeys(spec.method.name for spec in specs.values()))
    name = next((name for name in names if is_path(name) and name not in method_files), "")
    if name:
        raise UserError(f"its method is {name}, a file that is not with its runs")
    try:
        overrides = [text for text in recorded.get("overrides", ()) if {*methods_set(text)} <= {*names, "all"}]
        for name in names:
            for key, value in recorded.get("tuned", {}).get(f"{name}:{spec.type}", {}).items():
                overrides.append(format_override(f"methods.{name}.{key}", value))
        if load_recipe(dataset, overrides, spec.protocol).train.precision == "auto":  # as on the machine that ran it
            overrides.append(format_override("train.precision", spec.train.precision))
        weights = Path(recorded["weights"]) if "weights" in recorded else None
        methods = [str(method_files.get(name, name)) for name in names if name == names[0] or name in method_files]
        options = Options(dataset, ",".join(methods), spec.type, num_seeds, overrides, spec.protocol, weights=weights)
        if not method_files:
            check_plan(plan_from_options(options, spec), specs)
    except (TypeError, ValueError, AttributeError) as error:  # a received request may say anything
        raise UserError(str(error)) from None
    return options


def plan_from_options(options: Options, spec: Spec) -> list[Job]:
    """Return the jobs that options plan on the data and the weights of a spec, which need not be here."""
    file_override = ["model.weights=file"] if spec.model.weights == "file" else []
    recipe = requested_recipe(replace(options, weights=None, overrides=[*options.overrides, *file_override]))
    types = chosen_types(options.types)
    methods, _ = find_methods(requested_methods(options))
    check_request(recipe, methods, types, options.overrides)
    tree = SimpleNamespace(digest=lambda: spec.dataset.hierarchy)
    recorded = {"digest": spec.dataset.digest, "hierarchy": lambda distance: tree, "has_labels_above": False}
    data = cast("Prepared", SimpleNamespace(**recorded))
    num_seeds = requested_seeds(options, recipe)
    return make_jobs(resolve_model(recipe), data, methods, types, num_seeds, spec.weights)


def check_plan(plan: Sequence[Job], specs: Mapping[str, Spec]) -> None:
    """Raise a UserError that names the settings of the first recorded run that a plan lacks."""
    for spec in (specs[run_id] for run_id in specs if run_id not in {job.id: job for job in plan}):
        other = next((job.spec for job in plan if job.spec.label == spec.label), None)
        if other is None:
            raise UserError(f"its request does not plan {spec.label} here")
        planned_here, recorded = (dict(flatten(settings.content())) for settings in (other, spec))
        keys = different_keys(recorded, planned_here) or ["base"]
        differ = "; ".join(f"{key} was {recorded.get(key)} and is {planned_here.get(key)} here" for key in keys[:3])
        hint = "; give --weights FILE" if "weights" in keys else ""
        raise UserError(f"its request plans another run in place of {spec.label}: {differ}{hint}")
