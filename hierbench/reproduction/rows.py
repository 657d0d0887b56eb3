"""The rows of a published table or of a runs folder, with the records behind them and what cannot be had of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hierbench.config.options import Place
from hierbench.config.sections import FEATURE_TYPES
from hierbench.config.spec import Spec
from hierbench.leaderboard.columns import PAPER, column_of, further
from hierbench.leaderboard.measured import counted_runs
from hierbench.leaderboard.opening import open_board
from hierbench.leaderboard.paired import named_rows
from hierbench.leaderboard.scored import is_scored_row
from hierbench.leaderboard.statistics import Row
from hierbench.records.reading import read_records
from hierbench.records.record import Record, Records
from hierbench.records.sources import kept_source
from hierbench.reproduction.command import code_here, command_of, needs_weights, rows_of, weights_name
from hierbench.utils.errors import UserError

PACKAGES = ("hierbench", "torch", "python", "device", "threads")


@dataclass(frozen=True)
class Recorded:
    """A row, its finished runs and the command that gives them.

    Attributes:
        row: of the board.
        records: it is one of.
        runs: {seed: finished run} of the row.
        specs: {id: spec} of these and of all that they re-rank.
        command: words of `hierbench run`.
        files: {method: file that came with the record} for methods that are not installed with the code that ran.
        notes: what has to be had, or differs.
        metrics: that are shown and compared.
    """

    row: Row
    records: Records
    runs: dict[int, Record]
    specs: dict[str, Spec]
    command: list[str]
    files: dict[str, Path]
    metrics: Sequence[str]
    notes: Sequence[str] = ()

    @property
    def spec(self) -> Spec:
        """The spec of the first seed."""
        return self.specs[next(iter(self.runs.values())).id]

    @property
    def codes(self) -> dict[str, str]:
        """The digest of each method's code."""
        return {spec.method.name: spec.method.code for spec in self.specs.values()}

    @property
    def environments(self) -> dict[str, list[str]]:
        """The values that the runs' environments have: versions, device and threads."""
        found: dict[str, list[str]] = {}
        for run in self.runs.values():
            for name in PACKAGES:
                if (value := str(run.environment.get(name, "unknown"))) not in found.setdefault(name, []):
                    found[name].append(value)
        return found


def split_name(text: str) -> tuple[str, str | None]:
    """Return the row, METHOD or METHOD:TYPE, and the metric of ROW[:METRIC]."""
    method, *rest = text.split(":")
    kind = rest.pop(0) if rest and rest[0] in FEATURE_TYPES else ""
    return f"{method}:{kind}" if kind else method, ":".join(rest) if rest else None


def find_rows(place: Place, name: str, dataset: str | None) -> list[Recorded]:
    """Return the rows of a published table or a runs folder that ROW[:METRIC] names.

    Args:
        place: FOLDER/<dataset> of a published table, its .json or .md, or a runs folder; and data, for a metric that
            has to be computed from predictions.
        name: METHOD[:TYPE][:METRIC].
        dataset: its name or a user's file; None where all runs are of one dataset, which is built in.

    Raises:
        UserError: no such folder, row or metric; several datasets; or no command gives the runs.
    """
    folder = place.runs
    if folder.suffix in (".json", ".md") and not folder.is_dir():
        folder = folder.with_suffix("")
    if not folder.is_dir():
        raise UserError(f"{place.runs}: no such folder of records")
    records = read_records(folder)
    row_name, metric = split_name(name)
    methods = {record.spec.method.name for record in records if record.spec is not None}
    if row_name.partition(":")[0] not in methods and any(is_scored_row(one, records) for one in (name, row_name)):
        raise UserError(f"{row_name!r} are predictions made elsewhere and only scored here: it cannot be trained")
    dataset = dataset or _only_dataset(records)
    columns = [] if metric is None else [column_of(metric)]
    place = replace(place, runs=folder)
    board = open_board(dataset, place, columns if further(columns) else PAPER, apart=False)
    rows = sorted(named_rows(board.rows, row_name), key=lambda row: row.type)
    return [_recorded(row, board.records, dataset, metric) for row in rows]


def _only_dataset(records: Records) -> str:
    names = {record.spec.dataset.name for record in records if record.spec is not None}
    if len(names) != 1:
        what = f"runs of {len(names)} datasets ({', '.join(sorted(names))})" if names else "no runs of jobs"
        raise UserError(f"{records.root} holds {what}; name one with --dataset")
    return names.pop()


def _recorded(row: Row, records: Records, dataset: str, metric: str | None) -> Recorded:
    """Return a row with its records and its command."""
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
    files = _kept_files(specs, records)
    command = command_of(list(specs.values()), dataset, {name: passed(name, file) for name, file in files.items()})
    shown = [name for name in row.metrics if row.metrics[name].mean is not None] if metric is None else [metric]
    notes = _notes(rows_of(list(specs.values())), specs, files)
    if row.planned > len(runs):
        notes.append(
            f"{row.planned - len(runs)} of the row's {row.planned} runs are unfinished or rejected, and not compared"
        )
    by_seed = {specs[run.id].seed: run for run in runs}
    return Recorded(row, records, dict(sorted(by_seed.items())), specs, command, files, shown, notes)


def _kept_files(specs: Mapping[str, Spec], records: Records) -> dict[str, Path]:
    """Return {method: file} of source files kept with the records that are the code that ran; none is run here."""
    found: dict[str, Path] = {}
    for id_, spec in specs.items():
        name, code = spec.method.name, spec.method.code
        if name in found or code_here(name) == code:
            continue
        if kept := kept_source(name, code, records[id_], [records.root]):
            found[name] = kept[0]
    return found


def passed(name: str, file: Path) -> str:
    """Return what --methods takes for a kept file: its path, or that of a copy, as file and method share a name."""
    return str(file) if file.stem == name else f"./{name}.py"


def _notes(tops: Sequence[Spec], specs: Mapping[str, Spec], files: Mapping[str, Path]) -> list[str]:
    """Return what has to be had for a command, and what else it gives."""
    notes, first = [], tops[0]
    if needs_weights(first):
        notes.append(f"{weights_name(first)} stands for the file of weights with SHA-256 {first.weights}")
    for name, path in files.items():
        code = next(spec.method.code for spec in specs.values() if spec.method.name == name)
        copy = "" if path.stem == name else f"; copy it to ./{name}.py"
        notes.append(f"{path}, code {code[:12]} of {name}, came with the record: read it before it is run{copy}")
    seeds = [spec.seed for spec in tops]
    if others := sorted(set(range(seeds[-1] + 1)) - set(seeds)):
        which = ", ".join(map(str, others[:9])) + (", ..." if len(others) > 9 else "")
        notes.append(f"the row has no seed {which}: the command trains these too")
    return notes
