"""A leaderboard: rows of one dataset and one protocol, read from run records or from the published tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hierbench.config.options import folder_options
from hierbench.config.recipe import dataset_name, recipe_names
from hierbench.config.sections import PAPER_METHODS, Protocol
from hierbench.leaderboard.asked import OTHER_SETTINGS, choose, comparable, newest_of
from hierbench.leaderboard.columns import PAPER, Column
from hierbench.leaderboard.printed import PAPER_RUNS, other_rows, paper_datasets, paper_distance, paper_lines
from hierbench.leaderboard.ranking import rank
from hierbench.leaderboard.rows import evidence_of, rows_of
from hierbench.leaderboard.scored import is_scored_row, scored_rows
from hierbench.leaderboard.settings import recipe_of, remarks_on
from hierbench.leaderboard.statistics import Row
from hierbench.runs.record import Record, Records
from hierbench.utils.errors import UserError, unknown_name
from hierbench.utils.text import one_line

PUBLISHED, SCORED = "published", "scored"  # in place of a protocol: of printed tables, and of scored rows alone


FURTHER_KEYS = ("tuning", "scored", "citation", "seeds", "lacking")  # of JSON, not in its contract
NOT_IN_JSON = ("interval", "leads")  # fields of a cell that the contract has not


class NoRunsError(UserError):
    """There are no runs to make a table of."""


@dataclass(frozen=True, repr=False)
class Board:
    """Rows that may be ranked together, in the order of a table; made by `of` or `paper`, and never changed.

    Attributes:
        dataset, protocol, distance: what all rows share.
        rows: ranked and marked; type I before type II, the paper's methods before others, by name; scored rows last.
        remark: about data and settings; printed below the table, not part of the JSON contract.
        columns: of tables; JSON has all cells that the rows have, and names the columns unless they are the paper's.
        evidence: how many runs have which verdict, where they were verified; printed below the table.
        seeds: that a row needs to be ranked; () where rows have no runs.
        records: of the runs behind the rows, and of all others beside them; none of a printed table.
    """

    dataset: str
    protocol: str
    distance: str
    rows: tuple[Row, ...]
    remark: str = ""
    columns: tuple[Column, ...] = PAPER
    evidence: str = ""
    seeds: tuple[int, ...] = ()
    records: Records = field(default=Records(Path()), compare=False)

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
        records: Records,
        ids: Sequence[str] | None = None,
        protocol: Protocol | None = None,
        *,
        scored: bool = True,
        request: str | None = None,
    ) -> Board:
        """Return the table of runs, and below them the predictions made elsewhere that were scored here.

        Scored rows are marked in title and type, and not highlighted beside runs. Runs that are rejected or damaged
        count as planned and not as finished, and each row has the weakest state of its runs.

        Args:
            dataset: its name, or the file of a user's dataset.
            records: the runs.
            ids: only these runs, and no scored rows; by default all that have the settings of the last comparison.
            protocol: only runs under it; None takes that of the last comparison.
            scored: whether with the scored rows.
            request: the beginning of the id of a comparison whose settings are meant in place of the last one's.

        Raises:
            NoRunsError: no runs of the dataset under the protocol, or no such dataset.
            UserError: `ids` of more than one protocol, re-ranked runs without their bases, or no such request.
        """
        name = dataset_name(dataset)
        tested = _tested(name, records, ids)
        protocols = sorted({record.job.protocol for record in tested})
        if ids is not None and len(protocols) > 1:
            raise UserError(f"runs of {name} under two protocols ({', '.join(protocols)}) are never ranked together")
        found = [record for record in tested if protocol in (None, record.job.protocol)]
        if not found:
            alone = scored and ids is None and protocol is None and request is None
            rows, data, remarks = scored_rows(name, records, None) if alone else ([], None, [])
            if not rows or data is None:
                raise _no_runs(dataset, records, protocol)
            ranked, _ = rank(rows)
            remarks += _remark_on_two(rows)
            said = evidence_of(rows, records)
            return cls(name, SCORED, data.distance, ranked, "; ".join(remarks), evidence=said, records=records)
        board = cls._of_runs(dataset, records, ids, found, protocols, request)
        if ids is not None or not scored:
            return board
        more, _, remarks = scored_rows(name, records, records[board.rows[0].runs[0]].job)
        rows = [*board.rows, *more]
        remark = "; ".join(filter(None, [board.remark, *remarks]))
        return replace(board, rows=tuple(rows), remark=remark, evidence=evidence_of(rows, records))

    @classmethod
    def _of_runs(
        cls,
        dataset: str,
        records: Records,
        ids: Sequence[str] | None,
        found: list[Record],
        protocols: Sequence[str],
        request: str | None,
    ) -> Board:
        name = dataset_name(dataset)
        if ids is None:
            found, last, left = choose(found, records.requests, request)
        else:
            last, left = newest_of(found), ""
            found = comparable(found, last, with_bases=False)
        newest = last.job
        if not found:
            raise UserError(
                f"the re-ranked runs of {name} in {records.root} have lost their bases; run the command again"
            )
        rows = rows_of(found, records)
        if ids is None:  # a base that is no method of its own is no row of its own
            rows = [row for row in rows if not row.method.startswith("_")] or rows
        planned = planned_seeds(name, newest.protocol) if ids is None else None  # a command has its own number
        ranked, seeds = rank(rows, planned)
        remarks = remarks_on(dataset, newest, found, recipe_of(dataset, newest.protocol), records)
        remarks += sorted({record.remark for record in found if record.done} - {""})
        if ids is None and (other := next((name for name in protocols if name != newest.protocol), None)):
            remarks.append(f"there are runs under protocol {other}, in a table of their own: --protocol {other}")
        remarks += [left] if left else []
        if planned is not None and len(seeds) < planned:
            remarks.append(f"the recipe plans {planned} seeds")
        remarks += _remark_on_two(rows)
        return cls(
            name,
            newest.protocol,
            newest.dataset.distance,
            ranked,
            "; ".join(remarks),
            evidence=evidence_of(rows, records),
            seeds=seeds,
            records=records,
        )

    def __repr__(self) -> str:
        """Return the dataset, the protocol and the numbers of rows and runs."""
        runs, planned = (sum(getattr(row, name) for row in self.rows) for name in ("n", "planned"))
        return f"<Board {self.dataset}, protocol {self.protocol}: {len(self.rows)} rows, {runs} of {planned} runs>"

    @property
    def of_runs(self) -> Board:
        """The board without the rows that were scored or cited, which have no runs."""
        return replace(self, rows=tuple(row for row in self.rows if not row.scored and row.citation is None))

    def refuse_scored(self, names: Sequence[str]) -> None:
        """Raise a UserError for a name that is no row of runs, and that of a scored row of the dataset."""
        methods = {row.method for row in self.of_runs.rows}
        for name in names:
            if name.partition(":")[0] not in methods and is_scored_row(name, self.records, self.dataset):
                raise UserError(f"{name!r} is a scored row; only rows of runs are compared")

    @property
    def shown(self) -> list[Column]:
        """The columns of which at least one row has a cell."""
        return [column for column in self.columns if any(column.name in row.metrics for row in with_values(self.rows))]

    def as_json(self) -> dict[str, Any]:
        """Return the contract of leaderboard.json."""
        content: dict[str, Any] = {"dataset": self.dataset, "protocol": self.protocol, "distance": self.distance}
        content["rows"] = [_as_json(row) for row in self.rows]
        if self.seeds:
            content["seeds"] = list(self.seeds)
        if self.columns != PAPER:
            content["columns"] = [column.name for column in self.columns]
        return content


def _as_json(row: Row) -> dict[str, Any]:
    """Return a row as JSON types; what is not among the contract's keys only where there is something to say."""
    content = {name: value for name, value in vars(row).items() if name not in FURTHER_KEYS or value}
    if state := content.pop("state"):
        content["verdict"] = state
    content["metrics"] = {
        name: {key: value for key, value in vars(cell).items() if key not in NOT_IN_JSON}
        for name, cell in row.metrics.items()
    }
    return content


def _place(row: Row) -> tuple[bool, bool, str, bool, str]:
    return row.citation is not None, row.scored, row.type, row.method not in PAPER_METHODS, row.method


def with_values(rows: Sequence[Row]) -> Sequence[Row]:
    """Return the rows that say which metrics a table has: those without a finished run only where there are no others.

    They have an empty cell of every metric, also of HierDist@20 on a tree of fewer classes.
    """
    return [row for row in rows if row.n or row.citation is not None] or rows


def _tested(name: str, records: Records, ids: Sequence[str] | None) -> list[Record]:
    """Return the runs of a dataset that have test results; without `ids` not those of an ablation alone."""
    ablated = records.ablated
    found = records if ids is None else [record for run_id in ids if (record := records.get(run_id)) is not None]
    return [
        record
        for record in found
        if record.spec is not None and record.spec.dataset.name == name and record.spec.split == "test"
        if ids is not None or record.id not in ablated
    ]


def _no_runs(dataset: str, records: Records, protocol: Protocol | None) -> NoRunsError:
    name = dataset_name(dataset)
    if name == dataset and name not in recipe_names():
        there = {one_line(record.spec.dataset.name) for record in records if record.spec is not None}
        absent = "" if records.root.is_dir() else f"; no folder {records.root}, whose datasets would be known too"
        return NoRunsError(f"{unknown_name('recipe', dataset, there.union(recipe_names()))}{absent}")
    which, option = (f" under protocol {protocol}", f" --protocol {protocol}") if protocol else ("", "")
    command = f"run: hierbench run --methods paper --dataset {dataset}{option}{folder_options(records.root)}"
    if not records.root.is_dir():
        return NoRunsError(f"no runs of {name}{which}: no folder {records.root}; {command}")
    return NoRunsError(f"no runs of {name}{which} in {records.root}; {command}")


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
    return ["two seeds say little: a 95% interval of two values is 12.7 standard errors to each side"]


def left_out(remark: str) -> bool:
    """Return whether a part of a table's remark says that there are runs which it does not have."""
    return OTHER_SETTINGS in remark
