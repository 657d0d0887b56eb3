"""The overview of several tables: the verdict of those of the protocol, and differences from cross-entropy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from hierbench.leaderboard.board import Board
from hierbench.leaderboard.board_data import PUBLISHED
from hierbench.leaderboard.columns import PAPER_BY_NAME, Column
from hierbench.leaderboard.paired import BASELINE, Difference, difference_of_cells, holm
from hierbench.leaderboard.paper_tables import PAPER_DDOF, PAPER_RUNS
from hierbench.leaderboard.set_ranks import rank_content
from hierbench.leaderboard.statistics import Row, RowKey
from hierbench.leaderboard.table import Cell as TableCell
from hierbench.leaderboard.table import Interval, Line, Table, Text
from hierbench.leaderboard.verdict import VerdictRows, named_rows
from hierbench.leaderboard.verdict_table import claim_sentence

if TYPE_CHECKING:
    from hierbench.config.spec import Spec

ABSENT_CELL = Text("-")
NOTES = (
    "Differences are row minus cross-entropy of its type, +/- half-width of the 95% t-interval; arrows: p below 0.05 "
    "after Holm's correction over a table's differences.",
    "Records are taken as recorded; hierbench verify computes them again.",
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


def overview_table(boards: Sequence[Board]) -> Table:
    """Return methods down and tables across for mistake severity, below the verdict of the tables of the protocol."""
    tables = [TableSummary.of(board) for board in boards]
    column = PAPER_BY_NAME["mistake_severity"]
    names = list(dict.fromkeys(name for seen in tables for name in seen.rows))
    lines = [
        Line([Text("backbone"), *(Text(seen.network or "-") for seen in tables)]),
        Line([Text("training"), *(Text(seen.trained) for seen in tables)]),
    ]
    for name in sorted(names, key=lambda name: (name.partition(":")[2], names.index(name))):
        title = next(f"{seen.rows[name].title}, {seen.rows[name].type}" for seen in tables if name in seen.rows)
        lines.append(Line([Text(title), *(_gap(seen, name, column) for seen in tables)]))
    heads = [seen.board.dataset + (" (paper)" if seen.trained == "printed" else "") for seen in tables]
    evidence = VerdictRows.of(boards)
    table = Table(
        title=f"Overview: {column.title}",
        columns=["Row", *heads],
        rows=lines,
        notes=NOTES,
    )
    if not any(evidence.rows.values()):
        return table
    above = [claim_sentence(result, evidence) for result in evidence.claims]
    content = {"rows": table.as_records(), **evidence.content(), "ranks": rank_content(evidence)}
    return replace(table, above=above, content=content)


def _gap(seen: TableSummary, name: str, column: Column) -> TableCell:
    gap = seen.tests.get((name, column.name))
    if gap is None:
        mean = seen.mean(name, column.name) if name in seen.rows and name.startswith(f"{BASELINE}:") else None
        return ABSENT_CELL if mean is None else Text(f"{mean:.{column.digits}f} itself")
    better = (gap.mean > 0) == column.higher
    versus: Literal["", "better", "worse"] = "" if not gap.significant else "better" if better else "worse"
    return Interval(gap.mean, gap.ci95, column.digits, signed=True, versus=versus)
