"""The rows of a published table or of a runs folder, with the records behind them and what cannot be had of them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from hierbench.config.options import Place
from hierbench.config.sections import FEATURE_TYPES, Protocol
from hierbench.config.spec import Spec
from hierbench.experiments.checking import open_board, with_bases
from hierbench.experiments.publication.sources import kept_source
from hierbench.experiments.reproduction.command import code_here, command_of, needs_weights, rows_of, weights_name
from hierbench.leaderboard.columns import PAPER, column_of, further
from hierbench.leaderboard.measured import counted_runs
from hierbench.leaderboard.paired import named_rows
from hierbench.leaderboard.scored import is_scored_row
from hierbench.leaderboard.statistics import Row
from hierbench.runs.store import Run, Store
from hierbench.utils.errors import UserError
from hierbench.utils.files import read_json_object

PACKAGES = ("hierbench", "torch", "python", "device", "threads")


@dataclass(frozen=True)
class Recorded:
    """A row, its finished runs and the command that gives them.

    Attributes:
        row: of the board.
        runs: {seed: finished run} of the row.
        specs: {id: spec} of these and of all that they re-rank.
        command: words of `hierbench run`.
        files: {method: file that came with the record} for methods that are not installed with the code that ran.
        notes: what has to be had, or differs.
        metrics: that are shown and compared.
    """

    row: Row
    runs: dict[int, Run]
    specs: dict[str, Spec]
    command: list[str]
    files: dict[str, Path]
    metrics: Sequence[str]
    notes: Sequence[str] = ()

    @property
    def spec(self) -> Spec:
        """The spec of the first seed."""
        return self.specs[next(iter(self.runs.values())).folder.name]

    @property
    def environments(self) -> dict[str, list[str]]:
        """The values that the runs' environments have: versions, device and threads."""
        found: dict[str, list[str]] = {}
        for run in self.runs.values():
            environment = environment_of(run)
            for name in PACKAGES:
                if (value := str(environment.get(name, "unknown"))) not in found.setdefault(name, []):
                    found[name].append(value)
        return found


def environment_of(run: Run) -> dict[str, Any]:
    """Return a run's environment.json, {} where it cannot be read."""
    try:
        return read_json_object(run.folder / "environment.json")
    except (OSError, ValueError):
        return {}


def split_name(text: str) -> tuple[str, str | None]:
    """Return the row, METHOD or METHOD:TYPE, and the metric of ROW[:METRIC]."""
    method, *rest = text.split(":")
    kind = rest.pop(0) if rest and rest[0] in FEATURE_TYPES else ""
    return f"{method}:{kind}" if kind else method, ":".join(rest) if rest else None


def find_rows(
    place: Path, name: str, dataset: str | None, protocol: Protocol | None = None, data_dir: Path = Path("data")
) -> tuple[Store, list[Recorded]]:
    """Return the records of a published table or a runs folder, and the rows of it that ROW[:METRIC] names.

    Args:
        place: FOLDER/<dataset> of a published table, its .json or .md, or a runs folder.
        name: METHOD[:TYPE][:METRIC].
        dataset: its name or a user's file; None where all runs are of one dataset, which is built in.
        protocol: only runs under it; None takes that of the newest.
        data_dir: for a metric that has to be computed from predictions.

    Raises:
        UserError: no such folder, row or metric; several datasets; or no command gives the runs.
    """
    folder = place.with_suffix("") if place.suffix in (".json", ".md") and not place.is_dir() else place
    if not folder.is_dir():
        raise UserError(f"{place}: no such folder of records")
    store = Store(folder)
    row_name, metric = split_name(name)
    methods = {spec.method.name for spec in _specs(store)}
    if row_name.partition(":")[0] not in methods and any(is_scored_row(one, store) for one in (name, row_name)):
        raise UserError(f"{row_name!r} are predictions made elsewhere and only scored here: it cannot be trained")
    dataset = dataset or _only_dataset(store)
    columns = [] if metric is None else [column_of(metric)]
    opened = open_board(dataset, Place(folder, data_dir, protocol), columns if further(columns) else PAPER, apart=False)
    rows = sorted(named_rows(opened.board.rows, row_name), key=lambda row: row.type)
    return opened.store, [_recorded(row, opened.store, dataset, metric) for row in rows]


def _specs(store: Store) -> Iterator[Spec]:
    for run in store.runs():
        try:
            yield Spec.model_validate(run.spec())
        except (ValidationError, UserError):
            continue


def _only_dataset(store: Store) -> str:
    names = {spec.dataset.name for spec in _specs(store)}
    if len(names) != 1:
        what = f"runs of {len(names)} datasets ({', '.join(sorted(names))})" if names else "no runs of jobs"
        raise UserError(f"{store.root} holds {what}; name one with --dataset")
    return names.pop()


def _recorded(row: Row, store: Store, dataset: str, metric: str | None) -> Recorded:
    """Return a row with its records and its command."""
    runs, label = counted_runs(row, store), f"{row.method}:{row.type}"
    if not runs:
        raise UserError(f"{label} has no finished runs that count")
    if metric is not None and (metric not in row.metrics or row.metrics[metric].mean is None):
        raise UserError(f"{label} has no value of {metric}")
    specs = {id_: _spec(store.run(id_)) for id_ in with_bases([run.folder.name for run in runs], store)}
    files = _kept_files(specs, store)
    command = command_of(list(specs.values()), dataset, {name: passed(name, file) for name, file in files.items()})
    shown = [name for name in row.metrics if row.metrics[name].mean is not None] if metric is None else [metric]
    notes = _notes(rows_of(list(specs.values())), specs, files)
    if row.planned > len(runs):
        notes.append(
            f"{row.planned - len(runs)} of the row's {row.planned} runs are unfinished or rejected, and not compared"
        )
    by_seed = {specs[run.folder.name].seed: run for run in runs}
    return Recorded(row, dict(sorted(by_seed.items())), specs, command, files, shown, notes)


def _spec(run: Run) -> Spec:
    try:
        spec = Spec.model_validate(run.spec())
    except ValidationError:
        raise UserError(
            f"run {run.folder.name[:12]}: its record is missing, or of another version of hierbench"
        ) from None
    if spec.id != run.folder.name:
        raise UserError(f"run {run.folder.name[:12]}: its folder is not named after its spec")
    return spec


def _kept_files(specs: Mapping[str, Spec], store: Store) -> dict[str, Path]:
    """Return {method: file} of source files kept with the records that are the code that ran; none is run here."""
    found: dict[str, Path] = {}
    for id_, spec in specs.items():
        name, code = spec.method.name, spec.method.code
        if name not in found and code_here(name) != code and (kept := kept_source(name, code, store.run(id_), [store])):
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
