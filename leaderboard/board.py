"""A leaderboard: rows of one dataset and one protocol, read from run records or from the published tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from pydantic import ValidationError

from hierbench.config.recipe import dataset_name, recipe_names
from hierbench.config.scored import is_scored
from hierbench.config.sections import PAPER_METHODS, Protocol
from hierbench.config.spec import Spec
from hierbench.leaderboard.columns import PAPER, Column
from hierbench.leaderboard.printed import PAPER_RUNS, other_rows, paper_datasets, paper_distance, paper_lines
from hierbench.leaderboard.ranking import rank
from hierbench.leaderboard.rows import Evidence, Record, Verified, rows_of
from hierbench.leaderboard.scored import scored_rows
from hierbench.leaderboard.settings import recipe_of, remark_of, remarks_on
from hierbench.leaderboard.statistics import Row
from hierbench.runs.known import KnownRun, comparison_of
from hierbench.runs.store import Run, Store
from hierbench.utils.errors import UserError, unknown_name
from hierbench.utils.text import one_line

RECIPE_PLANS = "the recipe plans"
TWO_SEEDS = "two seeds say little"
OTHER_SETTINGS = "finished runs with other settings are not in this table"
PUBLISHED, SCORED = "published", "scored"  # in place of a protocol: of printed tables, and of scored rows alone


class NoRunsError(UserError):
    """There are no runs to make a table of."""


@dataclass(frozen=True, repr=False)
class Board:
    """Rows that may be ranked together, in the order of a table; made by `of` or `paper`, and never changed.

    Attributes:
        dataset, protocol, distance: what all rows share.
        rows: ranked and marked; type I before type II, the paper's methods before others, by name; scored rows last.
        remark: about data and settings; printed below the table, not part of the JSON contract.
        columns: of tables; JSON has all cells that the rows have.
        evidence: how many runs have which verdict, where they were verified; printed below the table.
        seeds: that a row needs to be ranked; () where rows have no runs.
    """

    dataset: str
    protocol: str
    distance: str
    rows: tuple[Row, ...]
    remark: str = ""
    columns: tuple[Column, ...] = PAPER
    evidence: str = ""
    seeds: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Put the rows into the order of a table."""
        object.__setattr__(self, "rows", tuple(sorted(self.rows, key=_place)))

    @classmethod
    def paper(cls, dataset: str, *, others: bool = False) -> Board:
        """Return the published table of a dataset (Liang & Davis, ICCV 2023, Tables 2 to 5): five runs a row.

        With `others`, what other authors printed is below it: cited, never ranked nor counted as runs.
        """
        if dataset not in paper_datasets():
            raise unknown_name("table of the paper for dataset", dataset, paper_datasets())
        rows = [
            Row(line["type"], line["method"], line["title"], PAPER_RUNS, PAPER_RUNS, cells)
            for line, cells in paper_lines(dataset)
        ]
        ranked, _ = rank(rows)
        return cls(dataset, PUBLISHED, paper_distance(dataset), (*ranked, *(other_rows(dataset) if others else ())))

    @classmethod
    def of(
        cls,
        dataset: str,
        store: Store,
        ids: Sequence[str] | None = None,
        protocol: Protocol | None = None,
        *,
        scored: bool = True,
    ) -> Board:
        """Return the table of the runs on disk, and below them the predictions made elsewhere that were scored here.

        Scored rows are marked in title and type, and not highlighted beside runs.

        Args:
            dataset: its name, or the file of a user's dataset.
            store: where the runs are; of a verified one, runs that are rejected count as planned and not as finished,
                and each row has the weakest verdict of its runs.
            ids: only these runs, and no scored rows; by default all that are comparable with the newest run.
            protocol: only runs under it; None takes that of the newest.
            scored: whether with the scored rows.

        Raises:
            NoRunsError: no runs of the dataset under the protocol, or no such dataset.
            UserError: `ids` of more than one protocol, or re-ranked runs without their bases.
        """
        name = dataset_name(dataset)
        evidence = store.evidence if isinstance(store, Verified) else Evidence()
        try:
            board = cls._of_runs(dataset, store, ids, protocol, evidence)
        except NoRunsError:
            rows, data, remarks = scored_rows(name, store, None) if scored and ids is None else ([], None, [])
            if not rows or data is None or protocol is not None:
                raise
            rows = [replace(row, verdict=evidence.of(row) or row.verdict) for row in rows]
            ranked, _ = rank(rows)
            remarks += _remark_on_two(rows)
            return cls(name, SCORED, data.distance, ranked, "; ".join(remarks), evidence=evidence.said(rows))
        if ids is not None or not scored:
            return board
        spec = spec_of(store.run(board.rows[0].runs[0]))
        more, _, remarks = scored_rows(name, store, spec)
        rows = [*board.rows, *(replace(row, verdict=evidence.of(row) or row.verdict) for row in more)]
        remark = "; ".join(filter(None, [board.remark, *remarks]))
        return replace(board, rows=tuple(rows), remark=remark, evidence=evidence.said(rows))

    @classmethod
    def _of_runs(
        cls,
        dataset: str,
        store: Store,
        ids: Sequence[str] | None,
        protocol: Protocol | None,
        evidence: Evidence,
    ) -> Board:
        name = dataset_name(dataset)
        records = _records(name, store, ids)
        protocols = sorted({spec.protocol for spec, _ in records})
        if ids is not None and len(protocols) > 1:
            raise UserError(f"runs of {name} under two protocols ({', '.join(protocols)}) are never ranked together")
        found = [(spec, run) for spec, run in records if protocol in (None, spec.protocol)]
        if not found:
            raise _no_runs(dataset, store, protocol)
        done = {run.folder.name for _, run in found if run.folder.name not in store.rejected and run.done}
        finished = [(spec, run) for spec, run in found if run.folder.name in done]
        newest = (finished or found)[-1][0]
        found = _comparable(found, newest, with_bases=ids is None)
        if not found:
            raise UserError(
                f"the re-ranked runs of {name} in {store.root} have lost their bases; run the command again"
            )
        rows = [replace(row, verdict=evidence.of(row) or row.verdict) for row in rows_of(found, done)]
        if ids is None:  # a base that is no method of its own is no row of its own
            rows = [row for row in rows if not row.method.startswith("_")] or rows
        planned = planned_seeds(name, newest.protocol) if ids is None else None  # a command has its own number
        ranked, seeds = rank(rows, planned)
        remarks = remarks_on(dataset, newest, found, recipe_of(dataset, newest.protocol))
        remarks += sorted({remark_of(run) for _, run in found if run.folder.name in done} - {""})
        if ids is None and (other := next((name for name in protocols if name != newest.protocol), None)):
            remarks.append(f"there are runs under protocol {other}, in a table of their own: --protocol {other}")
        shared = newest.comparison
        if others := sum(comparison_of(*one) != shared and one[0].protocol == newest.protocol for one in finished):
            remarks.append(f"{others} {OTHER_SETTINGS}")
        if planned is not None and len(seeds) < planned:
            remarks.append(f"{RECIPE_PLANS} {planned} seeds")
        remarks += _remark_on_two(rows)
        return cls(
            name,
            newest.protocol,
            newest.dataset.distance,
            ranked,
            "; ".join(remarks),
            evidence=evidence.said(rows),
            seeds=seeds,
        )

    def __repr__(self) -> str:
        """Return the dataset, the protocol and the numbers of rows and runs."""
        runs, planned = (sum(getattr(row, name) for row in self.rows) for name in ("n", "planned"))
        return f"<Board {self.dataset}, protocol {self.protocol}: {len(self.rows)} rows, {runs} of {planned} runs>"

    @property
    def of_runs(self) -> Board:
        """The board without the rows that were scored or cited, which have no runs."""
        return replace(self, rows=tuple(row for row in self.rows if not row.scored and row.citation is None))

    @property
    def shown(self) -> list[Column]:
        """The columns of which at least one row has a cell."""
        return [column for column in self.columns if any(column.name in row.metrics for row in with_values(self.rows))]

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
        return content


def _place(row: Row) -> tuple[bool, bool, str, bool, str]:
    return row.citation is not None, row.scored, row.type, row.method not in PAPER_METHODS, row.method


def with_values(rows: Sequence[Row]) -> Sequence[Row]:
    """Return the rows that say which metrics a table has: those without a finished run only where there are no others.

    They have an empty cell of every metric, also of HierDist@20 on a tree of fewer classes.
    """
    return [row for row in rows if row.n or row.citation is not None] or rows


def _records(name: str, store: Store, ids: Sequence[str] | None) -> list[Record]:
    """Return the runs of a dataset that have test results; without `ids` not those of an ablation alone."""
    runs = store.runs() if ids is None else map(store.run, ids)
    return [
        (spec, run)
        for run in runs
        if (spec := spec_of(run)) is not None and spec.dataset.name == name and spec.split == "test"
        if ids is not None or not (run.folder / "ablation.json").exists()
    ]


def _no_runs(dataset: str, store: Store, protocol: Protocol | None) -> NoRunsError:
    name = dataset_name(dataset)
    if name == dataset and name not in recipe_names():
        there = {one_line(spec.dataset.name) for run in store.runs() if (spec := spec_of(run)) is not None}
        return NoRunsError(str(unknown_name("dataset", dataset, there.union(recipe_names()))))
    which, option = (f" under protocol {protocol}", f" --protocol {protocol}") if protocol else ("", "")
    command = f"hierbench run --methods paper --dataset {dataset}{option}"
    return NoRunsError(f"no runs of {name}{which} in {store.root}; run: {command}")


def planned_seeds(dataset: str, protocol: str) -> int | None:
    """Return how many seeds a shipped recipe plans, which a row needs to be ranked.

    None for a user's dataset, whose recipe may not be at hand for whoever verifies the table: there it is what most
    rows have planned.
    """
    recipe = recipe_of(dataset, protocol) if dataset in recipe_names() else None
    return None if recipe is None else recipe.seeds


def _remark_on_two(rows: Sequence[Row]) -> list[str]:
    """Return the remark on a table whose rows have at most two seeds, [] for another."""
    if max((row.n for row in rows), default=0) != 2:
        return []
    return [f"{TWO_SEEDS}: a 95% interval of two values is 12.7 standard errors to each side"]


def left_out(remark: str) -> bool:
    """Return whether a part of a table's remark says that there are runs which it does not have."""
    return remark.endswith(OTHER_SETTINGS)


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


def spec_of(run: Run) -> Spec | None:
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
    for run, spec in [*((run, spec_of(run)) for run in others), *((run, None) for run in lost)]:
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
