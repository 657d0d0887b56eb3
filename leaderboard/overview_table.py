"""The overview of several tables: differences from cross-entropy, ranks, the paper's claims, and their agreement.

There is no test over tables: with N of them the smallest p of an exact test of two rows is 2 / 2^N (Demsar, JMLR 7,
2006), and tables on one network are not independent.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import resources
from typing import TYPE_CHECKING, Literal

from pydantic import Field, TypeAdapter
from scipy.stats import kendalltau, rankdata

from hierbench.config.sections import PAPER_METHODS
from hierbench.config.validation import Closed
from hierbench.leaderboard.board import Board
from hierbench.leaderboard.board_data import PUBLISHED
from hierbench.leaderboard.columns import Column
from hierbench.leaderboard.paired import BASELINE, Difference, difference_of_cells, holm
from hierbench.leaderboard.paper_tables import PAPER_DDOF, PAPER_RUNS
from hierbench.leaderboard.statistics import Row, RowKey, printed, ranked_rows
from hierbench.leaderboard.table import Cell as TableCell

if TYPE_CHECKING:
    from hierbench.config.spec import Spec
from hierbench.leaderboard.table import Interval, Line, Number, Table, Text

ABSENT_CELL = Text("-")
NOTES = (
    "Differences are row minus cross-entropy of its type, +/- half-width of the 95% t-interval. Arrows, holds and does "
    "not: p below 0.05 after Holm's correction over a table's differences; cannot tell: neither, with the corrected p "
    "where the interval excludes 0; no loss: the interval excludes one; tie: equal as printed.",
    "Mean rank and wins are of the rows that all tables have, by their means; tau-b is Kendall's, of the rows that two "
    "tables have.",
    "There is no test over tables: they are few, those on one network are not independent, and ImageNet's classes were "
    "in the pretraining of every network that starts from its weights.",
)


class Claim(Closed):
    """A claim of a paper on a row; `is_` as in claims.toml."""

    says: str
    row: str
    metric: str
    is_: Literal["better", "no worse", "best"] = Field(alias="is")


def read_claims() -> list[Claim]:
    """Return the claims of claims.toml."""
    text = (resources.files("hierbench.leaderboard") / "claims.toml").read_text(encoding="utf-8")
    return TypeAdapter(list[Claim]).validate_python(tomllib.loads(text)["claims"])


@dataclass(frozen=True)
class TableSummary:
    """A table as the overview has it: its ranked rows by "METHOD:TYPE", and their differences from cross-entropy."""

    board: Board
    rows: dict[str, Row]
    tests: dict[tuple[str, str], Difference]

    @classmethod
    def of(cls, board: Board) -> TableSummary:
        """Read a board; two rows of one method and type do not count."""
        ranked = ranked_rows(board.rows)
        names = [f"{row.method}:{row.type}" for row in ranked]
        rows = {name: row for name, row in zip(names, ranked, strict=True) if names.count(name) == 1}
        tests = printed_tests(board) if board.protocol == PUBLISHED else board.tests
        name_of = {row.key: name for name, row in rows.items()}
        return cls(board, rows, {(name_of[key], m): gap for (key, m), gap in tests.items() if key in name_of})

    @property
    def trained(self) -> str:
        """How its networks were trained."""
        if self.board.protocol == PUBLISHED:
            return "printed"
        return "frozen" if self._job.model.frozen else "fine-tuned" if self._job.weights else "from scratch"

    @property
    def network(self) -> str:
        """Its backbone, "" where that is not recorded."""
        return "" if self.board.protocol == PUBLISHED else self._job.model.backbone

    @property
    def _job(self) -> Spec:
        return self.board.records[self.board.rows[0].runs[0]].job

    def mean(self, row: str, metric: str) -> float | None:
        """Return the mean of a row, or None."""
        return self.rows[row].metrics[metric].mean if metric in self.rows[row].metrics else None


def printed_tests(board: Board) -> dict[tuple[RowKey, str], Difference]:
    """Return the tests of a printed table, as `Board.tests` of runs: Welch's test from means and half-widths."""
    gaps = dict[tuple[RowKey, str], Difference]()
    bases = {row.type: row for row in board.rows if row.method == BASELINE}
    for row in board.rows:
        base = bases.get(row.type, row)
        for name, cell in row.metrics.items() if base is not row else ():
            gap = difference_of_cells(cell, base.metrics[name], PAPER_RUNS, PAPER_DDOF)
            if gap:
                gaps[row.key, name] = gap
    adjusted = holm([gap.p for gap in gaps.values()])
    return {key: replace(gap, p_holm=p) for (key, gap), p in zip(gaps.items(), adjusted, strict=True)}


def verdict_on(claim: Claim, seen: TableSummary, column: Column) -> str:
    """Return whether a claim holds in a table, with the difference behind it; "-" where rows are missing."""
    if claim.row not in seen.rows or claim.metric not in seen.rows[claim.row].metrics:
        return "-"
    if claim.is_ == "best":
        means = {name: mean for name in seen.rows if (mean := seen.mean(name, claim.metric)) is not None}
        ours = [name for name in means if seen.rows[name].method in PAPER_METHODS]
        first = (max if column.higher else min)(ours, key=means.__getitem__)
        row = seen.rows[first]
        same = printed(means[first], column.digits) == printed(means[claim.row], column.digits)
        if row.method == seen.rows[claim.row].method:
            return "holds"
        return f"{'tie' if same else 'does not'}: {row.title} {row.type}"
    gap = seen.tests.get((claim.row, claim.metric))
    if gap is None:
        return "-"
    shown = f"{gap.mean:+.{column.digits}f} +/- {gap.ci95:.{column.digits}f}"
    gain = gap.mean if column.higher else -gap.mean
    unsure = f"cannot tell, {shown}" + f", p {gap.p_holm:.2f}" * (abs(gap.mean) > gap.ci95)
    if gap.significant and gain < 0:
        return f"does not, {shown}"
    if claim.is_ == "no worse":
        return f"holds, no loss: {shown}" if gain - gap.ci95 >= 0 else unsure
    return f"holds, {shown}" if gap.significant else unsure


def overview_table(boards: Sequence[Board], metric: str, claims: Sequence[Claim]) -> Table:
    """Return methods down and tables across for one metric, then claims, and the agreement of tables."""
    tables = [TableSummary.of(board) for board in boards]
    columns = {column.name: column for board in boards for column in board.columns}
    column = columns[metric]
    names = list(dict.fromkeys(name for seen in tables for name in seen.rows))
    ranks = rank_tables(tables, column)
    lines = [
        Line(
            [
                Text("Network"),
                Text("backbone"),
                *(Text(seen.network or "-") for seen in tables),
                ABSENT_CELL,
                ABSENT_CELL,
            ]
        ),
        Line([Text("Network"), Text("training"), *(Text(seen.trained) for seen in tables), ABSENT_CELL, ABSENT_CELL]),
    ]
    for name in sorted(names, key=lambda name: (name.partition(":")[2], names.index(name))):
        title = next(f"{seen.rows[name].title}, {seen.rows[name].type}" for seen in tables if name in seen.rows)
        row_ranks = ranks.get(name, [])
        mean = Number(sum(row_ranks) / len(row_ranks) if row_ranks else None, ".1f")
        wins = Number(row_ranks.count(1.0) if row_ranks else None, "d")
        gaps = [_gap(seen, name, column) for seen in tables]
        lines.append(Line([Text(column.title), Text(title), *gaps, mean, wins]))
    for claim in claims:
        verdicts = [Text(verdict_on(claim, seen, columns[claim.metric])) for seen in tables]
        lines.append(Line([Text("Claim"), Text(claim.says), *verdicts, ABSENT_CELL, ABSENT_CELL]))
    for seen in tables if len(tables) > 1 else ():
        taus = [_tau(seen, other, column) for other in tables]
        lines.append(Line([Text(f"tau-b, {column.title}"), Text(seen.board.dataset), *taus, ABSENT_CELL, ABSENT_CELL]))
    heads = [seen.board.dataset + (" (paper)" if seen.trained == "printed" else "") for seen in tables]
    return Table(
        title="Overview",
        columns=["Part", "Row", *heads, "Mean rank", "Wins"],
        rows=lines,
        notes=NOTES,
        merged=1,
    )


def rank_tables(tables: Sequence[TableSummary], column: Column) -> dict[str, list[float]]:
    """Return the ranks, one per table, of the rows that all tables have; equal means share their mean rank."""
    common = [
        name
        for name in tables[0].rows
        if all(name in seen.rows and seen.mean(name, column.name) is not None for seen in tables)
    ]
    sign = -1.0 if column.higher else 1.0
    table_ranks = [rankdata([sign * (seen.mean(name, column.name) or 0.0) for name in common]) for seen in tables]
    return {name: [float(ranks[place]) for ranks in table_ranks] for place, name in enumerate(common)}


def _gap(seen: TableSummary, name: str, column: Column) -> TableCell:
    gap = seen.tests.get((name, column.name))
    if gap is None:
        mean = seen.mean(name, column.name) if name in seen.rows and name.startswith(f"{BASELINE}:") else None
        return ABSENT_CELL if mean is None else Text(f"{mean:.{column.digits}f} itself")
    better = (gap.mean > 0) == column.higher
    versus: Literal["", "better", "worse"] = "" if not gap.significant else "better" if better else "worse"
    return Interval(gap.mean, gap.ci95, column.digits, signed=True, versus=versus)


def _tau(seen: TableSummary, other: TableSummary, column: Column) -> TableCell:
    """Return Kendall's tau-b of two tables' common rows, with their number; "-" below three of them."""
    pairs = [
        (mean, another)
        for name in seen.rows
        if name in other.rows
        and (mean := seen.mean(name, column.name)) is not None
        and (another := other.mean(name, column.name)) is not None
    ]
    if seen is other or len(pairs) < 3:
        return ABSENT_CELL
    tau = kendalltau([mean for mean, _ in pairs], [another for _, another in pairs]).statistic
    return Text(f"{float(tau):.2f} ({len(pairs)} rows)")
