"""A leaderboard: rows of one dataset and one protocol, read from run records or from the published tables."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, replace
from importlib import resources
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from hierbench.config.recipe import Recipe, dataset_name, recipe_names
from hierbench.config.scored import is_scored
from hierbench.config.sections import Protocol
from hierbench.config.spec import Spec
from hierbench.leaderboard.columns import PAPER, Column
from hierbench.leaderboard.ranking import rank
from hierbench.leaderboard.rows import Record, rows_of
from hierbench.leaderboard.scored import scored_rows
from hierbench.leaderboard.settings import departures, recipe_of, remark_of, tuning_of
from hierbench.leaderboard.statistics import METRICS, Cell, Row
from hierbench.runs.known import KnownRun, comparison_of
from hierbench.runs.store import Run, Store
from hierbench.utils.errors import UserError, unknown_name
from hierbench.utils.text import one_line

if TYPE_CHECKING:
    import pandas as pd

RECIPE_PLANS = "the recipe plans"
TWO_SEEDS = "two seeds say little"
OTHER_SETTINGS = "finished runs with other settings are not in this table"
PAPER_RUNS = 5  # behind every row of the paper


class NoRunsError(UserError):
    """There are no runs to make a table of."""


@dataclass(repr=False)
class Board:
    """Rows that may be ranked together; a notebook shows them as a table."""

    dataset: str
    protocol: str
    distance: str
    rows: list[Row]
    remark: str = ""  # about data and settings; printed below the table, not part of the JSON contract
    columns: tuple[Column, ...] = PAPER  # of tables; JSON has all cells that the rows have
    evidence: str = ""  # how many runs have which verdict, where they were verified; printed below the table
    seeds: tuple[int, ...] = ()  # that a row needs to be ranked; () where rows have no runs

    def __repr__(self) -> str:
        """Return the dataset, the protocol and the numbers of rows and runs."""
        runs, planned = (sum(getattr(row, name) for row in self.rows) for name in ("n", "planned"))
        return f"<Board {self.dataset}, protocol {self.protocol}: {len(self.rows)} rows, {runs} of {planned} runs>"

    def _repr_html_(self) -> str:
        from hierbench.leaderboard.render import html

        return html(self)

    def as_json(self) -> dict[str, Any]:
        """Return the contract of leaderboard.json."""
        content = asdict(self)
        del content["remark"], content["columns"], content["evidence"]
        for row in content["rows"]:
            for key in ("tuning", "scored", "citation", "seeds", "lacking", "verdict"):  # not among the contract's keys
                if not row[key]:
                    del row[key]
            for cell in row["metrics"].values():
                del cell["interval"]
                if not cell["groups"]:
                    del cell["groups"]
        if not content["seeds"]:
            del content["seeds"]
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
    return sorted(
        {file.name.removesuffix(".csv") for file in files if file.name.endswith(".csv")} - {"ablation", "others"}
    )


def paper_lines(name: str) -> list[tuple[dict[str, str], dict[str, Cell]]]:
    """Return the lines of a table in `paper/`: all columns as printed, and the cells of the metrics."""
    text = (resources.files("hierbench.leaderboard") / "paper" / f"{name}.csv").read_text(encoding="utf-8")
    lines = list(csv.DictReader(text.splitlines()))
    return [
        (line, {metric: Cell(float(line[metric]), float(line[f"{metric} ci95"])) for metric in METRICS})
        for line in lines
    ]


def paper_distance(dataset: str) -> str:
    """Return the hierarchical distance that the paper's numbers use."""
    return "depth" if dataset == "tieredimagenet-h" else "height"


def board_from_paper(dataset: str) -> Board:
    """Return the published table of a dataset (Liang & Davis, ICCV 2023, Tables 2 to 5): five runs a row."""
    if dataset not in paper_datasets():
        raise unknown_name("table of the paper for dataset", dataset, paper_datasets())
    rows = [
        Row(line["type"], line["method"], line["title"], PAPER_RUNS, PAPER_RUNS, cells)
        for line, cells in paper_lines(dataset)
    ]
    rank(rows)
    return Board(dataset, "published", paper_distance(dataset), rows)


def board_with_scored(
    dataset: str, store: Store, protocol: Protocol | None = None, rejected: Collection[str] = ()
) -> Board:
    """Return the table of the runs on disk, and below them the predictions made elsewhere that were scored on its data.

    Scored rows are marked in title and type, and not highlighted beside runs; rejected ones are left out. Errors are
    those of `board_from_runs`.
    """
    name = dataset_name(dataset)
    try:
        board = board_from_runs(dataset, store, protocol=protocol, rejected=rejected)
    except NoRunsError:
        rows, data, remarks = scored_rows(name, store, None, rejected)
        if not rows or data is None or protocol is not None:
            raise
        rank(rows)
        remarks += _remark_on_two(rows)
        return Board(name, "scored", data.distance, rows, "; ".join(remarks))
    spec = _spec(store.run(board.rows[0].runs[0]))
    rows, _, remarks = scored_rows(name, store, spec, rejected)
    return replace(board, rows=[*board.rows, *rows], remark="; ".join(filter(None, [board.remark, *remarks])))


def board_from_runs(
    dataset: str,
    store: Store,
    ids: Sequence[str] | None = None,
    protocol: Protocol | None = None,
    rejected: Collection[str] = (),
) -> Board:
    """Return the table of the runs on disk, without predictions that were only scored here.

    Args:
        dataset: its name, or the file of a user's dataset.
        store: where the runs are.
        ids: only these runs; by default all that are comparable with the newest run of the dataset.
        protocol: only runs under it; None takes that of the newest.
        rejected: ids of runs that count as planned but not as finished, as verification found them false.

    Raises:
        NoRunsError: no runs of the dataset under the protocol, or no such dataset.
        UserError: `ids` of more than one protocol, or re-ranked runs without their bases.
    """
    name = dataset_name(dataset)
    runs = store.runs() if ids is None else map(store.run, ids)
    records = [
        (spec, run)
        for run in runs
        if (spec := _spec(run)) is not None and spec.dataset.name == name and spec.split == "test"
        # Runs of an ablation alone have their own table.
        if ids is not None or not (run.folder / "ablation.json").exists()
    ]
    protocols = sorted({spec.protocol for spec, _ in records})
    if ids is not None and len(protocols) > 1:
        raise UserError(f"runs of {name} under two protocols ({', '.join(protocols)}) are never ranked together")
    found = [(spec, run) for spec, run in records if protocol in (None, spec.protocol)]
    if not found:
        if name == dataset and name not in recipe_names():
            there = {one_line(spec.dataset.name) for run in store.runs() if (spec := _spec(run)) is not None}
            raise NoRunsError(str(unknown_name("dataset", dataset, there.union(recipe_names()))))
        which, option = (f" under protocol {protocol}", f" --protocol {protocol}") if protocol else ("", "")
        command = f"hierbench run --methods paper --dataset {dataset}{option}"
        raise NoRunsError(f"no runs of {name}{which} in {store.root}; run: {command}")
    done = {run.folder.name for _, run in found if run.folder.name not in rejected and run.done}
    finished = [(spec, run) for spec, run in found if run.folder.name in done]
    newest = (finished or found)[-1][0]
    found = _comparable(found, newest, with_bases=ids is None)
    if not found:
        raise UserError(f"the re-ranked runs of {name} in {store.root} have lost their bases; run the command again")
    rows = rows_of(found, done)
    if ids is None:  # a base that is no method of its own is no row of its own
        rows = [row for row in rows if not row.method.startswith("_")] or rows
    recipe = recipe_of(dataset, newest.protocol)
    planned = planned_seeds(name, newest.protocol) if ids is None else None  # a command has its own number
    table_seeds = rank(rows, planned)
    remarks = _remarks(dataset, newest, found, recipe)
    remarks += sorted({remark_of(run) for _, run in found if run.folder.name in done} - {""})
    if ids is None and (other := next((name for name in protocols if name != newest.protocol), None)):
        remarks.append(f"there are runs under protocol {other}, in a table of their own: --protocol {other}")
    shared = newest.comparison
    if others := sum(comparison_of(*one) != shared and one[0].protocol == newest.protocol for one in finished):
        remarks.append(f"{others} {OTHER_SETTINGS}")
    if planned is not None and len(table_seeds) < planned:
        remarks.append(remark_on_seeds(planned))
    remarks += _remark_on_two(rows)
    distance = newest.dataset.distance
    return Board(name, newest.protocol, distance, rows, "; ".join(remarks), seeds=table_seeds)


def planned_seeds(dataset: str, protocol: str) -> int | None:
    """Return how many seeds a shipped recipe plans, which a row needs to be ranked.

    None for a user's dataset, whose recipe may not be at hand for whoever verifies the table: there it is what most
    rows have planned.
    """
    recipe = recipe_of(dataset, protocol) if dataset in recipe_names() else None
    return None if recipe is None else recipe.seeds


def remark_on_seeds(planned: int) -> str:
    """Return the remark on a table of fewer seeds."""
    return f"{RECIPE_PLANS} {planned} seeds"


def _remark_on_two(rows: Sequence[Row]) -> list[str]:
    """Return the remark on a table whose rows have at most two seeds, [] for another."""
    if max((row.n for row in rows), default=0) != 2:
        return []
    return [f"{TWO_SEEDS}: a 95% interval of two values is 12.7 standard errors to each side"]


def left_out(remark: str) -> bool:
    """Return whether a part of a table's remark says that there are runs which it does not have."""
    return remark.endswith(OTHER_SETTINGS)


def _remarks(dataset: str, newest: Spec, found: list[Record], recipe: Recipe | None) -> list[str]:
    """Return what the runs of a table have in common, and how that departs from the recipe."""
    train = newest.train
    views = f" frozen, views {newest.model.views}" if newest.model.frozen else ""
    # A record says "default" for any file that was given in place of the library's: its digest tells them apart.
    weights = f", weights {newest.model.weights} (SHA-256 {newest.weights[:8]})" if newest.weights else ""
    remarks = [
        f"{newest.model.backbone}{views}{weights}, {train.epochs} epochs, batch {train.batch_size}, {train.precision}"
    ]
    mixed = _types_of_several_rates(found)
    # One spec of each kind: the others differ in seeds, hyperparameters and code, which are no departures.
    kinds = {(spec.type, spec.method.name, spec.train.lr, spec.base is None): spec for spec, _ in found}.values()
    if odd := dict.fromkeys(
        line for spec in kinds for line in departures(spec, dataset, with_rates=spec.type not in mixed)
    ):
        remarks.append(f"not as in the recipe: {', '.join(odd)}")
    if mixed:
        tuned = all(tuning_of(run) for spec, run in found if spec.type in mixed)
        remarks.append("learning rates tuned per method" if tuned else "learning rates differ between methods")
    if recipe is not None and recipe.remark:
        remarks.append(recipe.remark)
    return remarks


def _comparable(records: list[Record], newest: Spec, *, with_bases: bool) -> list[Record]:
    """Return the runs that may be ranked with the newest; `with_bases` drops re-ranked runs that lack a base.

    Code may differ between methods, learning rates between the types of a method; within one, the newest counts.
    Re-ranked runs have the learning rates of their first base.
    """
    shared = newest.comparison
    records = [(spec, run) for spec, run in records if comparison_of(spec, run) == shared]
    rates = {(spec.method.name, spec.type): spec.train.lr for spec, _ in records}
    code = {spec.method.name: (spec.method.version, spec.method.code) for spec, _ in records}
    records = [
        (spec, run)
        for spec, run in records
        if spec.train.lr == rates[spec.method.name, spec.type]
        and (spec.method.version, spec.method.code) == code[spec.method.name]
    ]
    ids = {run.folder.name for _, run in records}
    return [(spec, run) for spec, run in records if not with_bases or ids.issuperset(spec.bases)]


def _types_of_several_rates(records: list[Record]) -> set[str]:
    """Return the types whose methods were not all trained with the same learning rates."""
    rates = {(spec.type, spec.train.lr) for spec, _ in records}
    return {kind for kind, count in Counter(kind for kind, _ in rates).items() if count > 1}


def _spec(run: Run) -> Spec | None:
    """Return a run's spec, None where it is damaged or of another version."""
    if isinstance(run, KnownRun):
        return run.known
    try:
        return Spec.model_validate(run.spec())
    except (ValidationError, UserError):
        return None


def damaged_runs(dataset: str, store: Store) -> list[str]:
    """Return a line for each run of a dataset, or without a readable spec, that has damaged files."""
    lines, name = [], dataset_name(dataset)
    runs, lost = store.listing()
    others = [run for run in runs if not isinstance(run, KnownRun)]
    for run, spec in [*((run, _spec(run)) for run in others), *((run, None) for run in lost)]:
        if run.folder.is_symlink():
            lines.append(f"run {run.folder.name[:12]} is a symbolic link, which is not followed, and not counted")
            continue
        names = run.damaged() or ([] if run.has_spec else ["spec.json"])
        if names and (spec is None or spec.dataset.name == name):
            what = f"run {run.folder.name[:12]}" + (f" ({spec.label})" if spec else "")
            again = "hierbench run computes it again"
            if run.has_spec and is_scored(run.spec()):
                again = "remove its folder and score the file again"
            lines.append(f"{what} is damaged ({', '.join(names)}) and not counted; {again}")
    return lines
