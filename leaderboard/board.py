"""A leaderboard: rows of one dataset and one protocol, read from run records or from the published tables."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from importlib import resources
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from hierbench.config.recipe import Protocol, recipe_names
from hierbench.config.spec import Spec
from hierbench.leaderboard.settings import departures
from hierbench.leaderboard.statistics import METRICS, Cell, Row, highlight, summarise
from hierbench.runs.store import Run, Store
from hierbench.utils.errors import UserError, unknown_name
from hierbench.utils.files import read_json
from hierbench.utils.text import one_line

if TYPE_CHECKING:
    import pandas as pd

PAPER_RUNS = 5  # behind every row of the paper


class NoRunsError(UserError):
    """There are no runs to make a table of."""


@dataclass(repr=False)
class Board:
    """Rows that may be ranked together; a notebook shows it as a table."""

    dataset: str
    protocol: str
    distance: str
    rows: list[Row]
    remark: str = ""  # about data and settings; printed below the table, not part of the JSON contract

    def __repr__(self) -> str:
        """Return what it is of, and how many rows and runs it has."""
        runs, planned = (sum(getattr(row, name) for row in self.rows) for name in ("n", "planned"))
        return f"<Board {self.dataset}, protocol {self.protocol}: {len(self.rows)} rows, {runs} of {planned} runs>"

    def _repr_html_(self) -> str:
        from hierbench.leaderboard.render import html

        return html(self)

    def as_json(self) -> dict[str, Any]:
        """Return the contract of leaderboard.json."""
        content = asdict(self)
        del content["remark"]
        for row in content["rows"]:
            if row["tuning"] is None:  # the contract's keys alone, unless there is something to say
                del row["tuning"]
        return {"schema": 1, **content}

    def frame(self) -> pd.DataFrame:
        """Return a row per finished run and metric: type, method, metric, run (counted from 0) and value."""
        import pandas as pd

        return pd.DataFrame(
            [
                {"type": row.type, "method": row.method, "metric": metric, "run": number, "value": value}
                for row in self.rows
                for metric, cell in row.metrics.items()
                for number, value in enumerate(cell.values)
            ]
        )


def paper_datasets() -> list[str]:
    """Return the datasets whose published table is shipped."""
    files = (resources.files("hierbench.leaderboard") / "paper").iterdir()
    return sorted({file.name.removesuffix(".csv") for file in files if file.name.endswith(".csv")} - {"ablation"})


def paper_lines(name: str) -> list[tuple[dict[str, str], dict[str, Cell]]]:
    """Return the lines of a table in `paper/`: all columns as printed, and the cells of the metrics."""
    text = (resources.files("hierbench.leaderboard") / "paper" / f"{name}.csv").read_text(encoding="utf-8")
    lines = list(csv.DictReader(text.splitlines()))
    return [
        (line, {metric: Cell(float(line[metric]), float(line[f"{metric} ci95"])) for metric in METRICS})
        for line in lines
    ]


def paper_distance(dataset: str) -> str:
    """Return which hierarchical distance the paper's numbers are of."""
    return "depth" if dataset == "tieredimagenet-h" else "height"


def board_from_paper(dataset: str) -> Board:
    """Return the published table of a dataset (Liang & Davis, ICCV 2023, Tables 2 to 5): five runs a row."""
    if dataset not in paper_datasets():
        raise unknown_name("table of the paper for dataset", dataset, paper_datasets())
    rows = [
        Row(line["type"], line["method"], line["title"], PAPER_RUNS, PAPER_RUNS, cells)
        for line, cells in paper_lines(dataset)
    ]
    highlight(rows)
    return Board(dataset, "published", paper_distance(dataset), rows)


def board_from_runs(
    dataset: str, store: Store, ids: Sequence[str] | None = None, protocol: Protocol | None = None
) -> Board:
    """Return the table of the runs on disk.

    Args:
        dataset: its name.
        store: where the runs are.
        ids: only these runs; by default all that may be compared with the newest run of the dataset.
        protocol: only runs under it; None takes that of the newest.

    Raises:
        NoRunsError: no runs of the dataset under the protocol.
        UserError: no such dataset, or `ids` of more than one protocol.
    """
    runs = store.runs() if ids is None else map(store.run, ids)
    records = ((spec, run) for spec, run in map(_record, runs) if spec is not None)
    if ids is None:  # what was run for an ablation alone is in a table of its own
        records = ((spec, run) for spec, run in records if not (run.folder / "ablation.json").exists())
    found = [(spec, run) for spec, run in records if spec.dataset.name == dataset and spec.split == "test"]
    protocols = {spec.protocol for spec, _ in found}
    if ids is not None and len(protocols) > 1:
        raise UserError(
            f"runs of {dataset} under two protocols ({', '.join(sorted(protocols))}) are never ranked together"
        )
    if protocol is not None:
        found = [(spec, run) for spec, run in found if spec.protocol == protocol]
    if not found:
        if dataset not in recipe_names():
            raise unknown_name("dataset", dataset, recipe_names())
        which, option = (f" under protocol {protocol}", f" --protocol {protocol}") if protocol else ("", "")
        command = f"hierbench run --methods all --dataset {dataset}{option}"
        raise NoRunsError(f"no runs of {dataset}{which} in {store.root}; run: {command}")
    finished = [spec for spec, run in found if run.done]
    newest = finished[-1] if finished else found[-1][0]
    others = sum(spec.comparison != newest.comparison and spec.protocol == newest.protocol for spec in finished)
    elsewhere = sorted(protocols - {newest.protocol}) if ids is None else []
    found = [(spec, run) for spec, run in found if spec.comparison == newest.comparison]
    # Learning rates may differ between the types, code between methods; within one, the newest counts.
    rates = {spec.type: spec.train.lr for spec, _ in found}
    code = {spec.method.name: (spec.method.version, spec.method.code) for spec, _ in found}
    found = [
        (spec, run)
        for spec, run in found
        if spec.train.lr == rates[spec.type] and (spec.method.version, spec.method.code) == code[spec.method.name]
    ]
    specs = {run.folder.name: spec for spec, run in found}
    if ids is None:  # a re-ranked run counts as long as the run it re-ranks does
        found = [(spec, run) for spec, run in found if spec.base is None or spec.base in specs]
    if not found:
        raise UserError(f"the re-ranked runs of {dataset} in {store.root} have lost their bases; run the command again")
    rows = list(_rows(found))
    highlight(rows)
    train = newest.train
    remarks = [f"{newest.model.backbone}, {train.epochs} epochs, batch {train.batch_size}, {train.precision}"]
    odd = dict.fromkeys(line for spec, _ in found for line in departures(spec))
    if odd:
        remarks.append(f"not as in the recipe: {', '.join(odd)}")
    remarks += sorted({_remark(run) for _, run in found if run.done} - {""})
    if elsewhere:
        remarks.append(
            f"there are runs under protocol {elsewhere[0]}, in a table of their own: --protocol {elsewhere[0]}"
        )
    if others:
        remarks.append(f"{others} finished runs with other settings are not in this table")
    return Board(dataset, newest.protocol, newest.dataset.distance, rows, "; ".join(remarks))


def _record(run: Run) -> tuple[Spec | None, Run]:
    """Return a run with its spec, or None for one that is damaged or of another version, which no table can hold."""
    try:
        return Spec.model_validate(run.spec()), run
    except (ValidationError, UserError):
        return None, run


def damaged_runs(dataset: str, store: Store) -> list[str]:
    """Return a line for each run of a dataset, or without a readable spec, that has damaged files."""
    lines = []
    for spec, run in [*map(_record, store.runs()), *((None, run) for run in store.lost())]:
        if run.folder.is_symlink():
            lines.append(f"run {run.folder.name[:12]} is a symbolic link, which is not followed, and not counted")
            continue
        names = run.damaged() or ([] if run.has_spec else ["spec.json"])
        if names and (spec is None or spec.dataset.name == dataset):
            what = f"run {run.folder.name[:12]}" + (f" ({spec.label})" if spec else "")
            lines.append(f"{what} is damaged ({', '.join(names)}) and not counted; hierbench run computes it again")
    return lines


def _remark(run: Run) -> str:
    """Return what is odd about the data of a run, e.g. that it is a part of the dataset."""
    try:
        return str(read_json(run.folder / "environment.json")["data"]["remark"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _rows(found: list[tuple[Spec, Run]]) -> Iterable[Row]:
    """Group runs by type and method; hyperparameters that differ make rows of their own."""
    groups: dict[tuple[str, str, str], dict[int, tuple[Spec, Run]]] = {}
    for (
        spec,
        run,
    ) in found:  # a seed counts once: what an earlier version ran under another id gives way to the newest that is done
        variant = spec.model_copy(update={"seed": 0, "base": None}).id
        seeds = groups.setdefault((spec.type, spec.method.name, variant), {})
        if run.done or spec.seed not in seeds:
            seeds[spec.seed] = (spec, run)
    variants = Counter((kind, method) for kind, method, _ in groups)
    for (kind, method, _), group in groups.items():
        spec, runs = next(iter(group.values()))[0], [group[seed][1] for seed in sorted(group)]
        done = [run for run in runs if run.done]
        results = [run.metrics()["test"] for run in done]
        title = one_line(str(done[0].metrics()["title"] if done else method))
        if variants[kind, method] > 1:
            title = one_line(f"{title} ({', '.join(f'{name}={value}' for name, value in spec.method.params.items())})")
        names = [metric for metric in METRICS if all(metric in result for result in results)]
        values = {name: [float("nan") if r[name] is None else float(r[name]) for r in results] for name in names}
        yield Row(
            type=kind,
            method=method,
            title=title,
            n=len(done),
            planned=len(runs),
            metrics={name: summarise(values[name], spec.evaluation.ddof) for name in names},
            runs=[run.folder.name for run in runs],
            tuning=_tuning(runs[0]),
        )


def _tuning(run: Run) -> dict[str, Any] | None:
    """Return the search that a run's hyperparameters came out of."""
    try:
        content = read_json(run.folder / "tuning.json")
        return {"trials": int(content["trials"]), "runs": int(content["runs"]), "study": str(content["study"])}
    except (OSError, ValueError, KeyError, TypeError):
        return None
