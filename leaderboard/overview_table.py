"""The overview of several tables: differences from cross-entropy, ranks, the paper's claims, and their agreement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from scipy.stats import kendalltau, rankdata

from hierbench.leaderboard.board import Board
from hierbench.leaderboard.board_data import PUBLISHED
from hierbench.leaderboard.claims import (
    Claim,
    ClaimOverTables,
    ClaimTest,
    claim_tests,
    claims_over_tables,
    named_rows,
    random_effects,
)
from hierbench.leaderboard.columns import Column
from hierbench.leaderboard.paired import BASELINE, Difference, difference_of_cells, holm
from hierbench.leaderboard.paper_tables import PAPER_DDOF, PAPER_RUNS
from hierbench.leaderboard.statistics import Row, RowKey
from hierbench.leaderboard.table import Cell as TableCell

if TYPE_CHECKING:
    from hierbench.config.spec import Spec
from hierbench.leaderboard.table import Interval, Line, Number, Table, Text

ABSENT_CELL = Text("-")
NOTES = (
    "Differences are row minus cross-entropy of its type, +/- half-width of the 95% t-interval; arrows: p below 0.05 "
    "after Holm's correction over a table's differences.",
    "Claims: yes, no or open by p below 0.05 after Holm's correction over the claims of a table; the difference is "
    "from the reference that the claim names, of one of the best from the runner-up; tie: equal as printed. No loss is "
    "a loss below half a point, by a one-sided test.",
    "Over datasets: tables of the same images averaged, then the mean gain with its 95% t-interval, the number of "
    "gains, p of Wilcoxon's signed-rank test and of the sign test, and the former corrected over the claims, which "
    "decides. Over tables: the same with every table for itself, although those of the same images or network are not "
    "independent. Effect: of random effects over tables.",
    "Mean rank and wins are of the rows that all tables have, by their means; tau-b is Kendall's, of the rows that two "
    "tables have.",
)


@dataclass(frozen=True)
class TableSummary:
    """A table as the overview has it: its ranked rows by "METHOD:TYPE", and their differences from cross-entropy."""

    board: Board
    rows: dict[str, Row]
    tests: dict[tuple[str, str], Difference]

    @classmethod
    def of(cls, board: Board) -> TableSummary:
        """Read a board; two rows of one method and type do not count."""
        rows = named_rows(board)
        tests = printed_tests(board) if board.protocol == PUBLISHED else board.tests
        name_of = {row.key: name for name, row in rows.items()}
        return cls(board, rows, {(name_of[key], m): gap for (key, m), gap in tests.items() if key in name_of})

    @property
    def is_trained(self) -> bool:
        """Whether it is of runs, rather than printed numbers."""
        return self.board.protocol != PUBLISHED

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


def claim_lines(claims: Sequence[Claim], tables: Sequence[TableSummary], columns: Mapping[str, Column]) -> list[Line]:
    """Return a line per claim: over tables first, then how it fares on each."""
    boards = [seen.board for seen in tables]
    tests = [claim_tests(claims, board, columns) for board in boards]
    by_images, by_table = (
        claims_over_tables(claims, boards, tests, columns, by_images=by_images) for by_images in (True, False)
    )
    lines = []
    for place, claim in enumerate(claims):
        column = columns[claim.metric]
        trained = [table_tests[place].gap for seen, table_tests in zip(tables, tests, strict=True) if seen.is_trained]
        gaps = [gap for gap in trained if gap is not None]
        mean, half_width = random_effects(gaps, column) if len(gaps) > 1 else (None, None)
        over = [Text(_over_text(units[place], column)) for units in (by_images, by_table)]
        effect = Interval(mean, half_width, column.digits, signed=True)
        cells = [Text(_claim_text(table_tests[place], column)) for table_tests in tests]
        lines.append(_line("Claim", claim.says, cells, [*over, effect]))
    return lines


def _line(
    part: str,
    row: str,
    cells: Sequence[TableCell],
    over: Sequence[TableCell] = (ABSENT_CELL,) * 3,
    ranks: Sequence[TableCell] = (ABSENT_CELL,) * 2,
) -> Line:
    """Return a line of the overview: a cell for each table between those over tables and those of ranks."""
    return Line([Text(part), Text(row), *over, *cells, *ranks])


def _claim_text(test: ClaimTest, column: Column) -> str:
    if test.gap is None:
        return "-"
    gap = test.gap
    shown = f"{test.verdict}, {gap.mean:+.{column.digits}f} +/- {gap.ci95:.{column.digits}f}"
    against = f" to {test.against}" if test.against else ""
    return f"{shown}{against}, p {gap.p_holm:.2g}"


def _over_text(over: ClaimOverTables | None, column: Column) -> str:
    if over is None:
        return "-"
    spread = "" if over.units < 2 else f" +/- {over.ci95:.{column.digits}f}"
    gain = f"{over.gain:+.{column.digits}f}{spread}"
    tests = f"p {over.wilcoxon:.2g} (sign {over.sign:.2g}), corrected {over.p_holm:.2g}"
    return f"{over.verdict}, gain {gain}, {over.wins} of {over.units}, {tests}"


def overview_table(boards: Sequence[Board], metric: str, claims: Sequence[Claim]) -> Table:
    """Return methods down and tables across for one metric, then claims, and the agreement of tables."""
    tables = [TableSummary.of(board) for board in boards]
    columns = {column.name: column for board in boards for column in board.columns}
    column = columns[metric]
    names = list(dict.fromkeys(name for seen in tables for name in seen.rows))
    ranks = rank_tables(tables, column)
    lines = [
        _line("Network", "backbone", [Text(seen.network or "-") for seen in tables]),
        _line("Network", "training", [Text(seen.trained) for seen in tables]),
    ]
    for name in sorted(names, key=lambda name: (name.partition(":")[2], names.index(name))):
        title = next(f"{seen.rows[name].title}, {seen.rows[name].type}" for seen in tables if name in seen.rows)
        row_ranks = ranks.get(name, [])
        mean = Number(sum(row_ranks) / len(row_ranks) if row_ranks else None, ".1f")
        wins = Number(row_ranks.count(1.0) if row_ranks else None, "d")
        gaps = [_gap(seen, name, column) for seen in tables]
        lines.append(_line(column.title, title, gaps, ranks=[mean, wins]))
    lines += claim_lines(claims, tables, columns)
    for seen in tables if len(tables) > 1 else ():
        taus = [_tau(seen, other, column) for other in tables]
        lines.append(_line(f"tau-b, {column.title}", seen.board.dataset, taus))
    heads = [seen.board.dataset + (" (paper)" if seen.trained == "printed" else "") for seen in tables]
    return Table(
        title="Overview",
        columns=["Part", "Row", "Over datasets", "Over tables", "Effect", *heads, "Mean rank", "Wins"],
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
