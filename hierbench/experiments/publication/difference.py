"""What a new publication of a table changes, and what of that is worse, with what both rest on."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hierbench.config.sections import PROTOCOLS, Protocol
from hierbench.experiments.verification.tables import STRENGTH
from hierbench.leaderboard.board import Board
from hierbench.leaderboard.boards import BoardDifference, ChangedRow, differences_of
from hierbench.leaderboard.statistics import Row
from hierbench.leaderboard.tables.board import lacking
from hierbench.runs.store import Store
from hierbench.utils.text import one_line

ABOUT_THE_ROW = ("method.", "environment.", "train.lr")  # keys of a spec in which rows of one table may differ
SHOWN = 3  # settings named in a line


@dataclass
class Changes:
    """How a table differs from an earlier one; rows are METHOD:TYPE.

    Attributes:
        added: rows.
        removed: rows.
        changed: {"row": its name, metric or "seeds", "verdict", "rank", "star" or "best": [old, new]} of rows that both
            have.
        worse: (row, why).
        boards: the comparison of the records; None where there was no earlier table.
    """

    added: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    changed: list[dict[str, Any]] = field(default_factory=list)
    worse: list[tuple[str, str]] = field(default_factory=list)
    boards: BoardDifference | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing differs."""
        return not (self.added or self.removed or self.changed)

    def lines(self) -> list[str]:
        """Return a line per row that differs."""
        changed = [
            f"changed {one['row']}: "
            + ", ".join(f"{name} {_shown(old)} -> {_shown(new)}" for name, (old, new) in list(one.items())[1:])
            for one in self.changed
        ]
        lines = [*(f"added {row}" for row in self.added), *changed, *(f"removed {row}" for row in self.removed)]
        return lines or ["no row changes"]


def label_of(row: Row) -> str:
    """Return how commands and cards name a row: METHOD:TYPE."""
    return one_line(f"{row.method}:{row.type}")


def first_changes(board: Board) -> Changes:
    """Return the changes of a table that had none before it."""
    return Changes(added=[label_of(row) for row in board.rows])


def changes_between(old: Path, before: Board, new: Path, after: Board) -> Changes:
    """Compare two tables of one dataset.

    Worse is a row that disappears, loses seeds or its rank, has a significantly worse mean or a weaker verdict.
    Changes are those of the columns that either table shows.

    Args:
        old: the earlier records.
        before: their table, with verdicts.
        new: the records as they will be.
        after: their table, with verdicts.

    Raises:
        UserError: they are of different data, trees, distances or protocols.
    """
    boards = differences_of((before, Store(old), old), (_shown_too(after, before), Store(new), new))
    found = Changes([label_of(row) for row in boards.added], [label_of(row) for row in boards.removed], boards=boards)
    earlier = {frozenset(row.runs): row for row in before.rows}
    changed = {frozenset(row.row.runs): row for row in boards.changed}
    added = {frozenset(row.runs) for row in boards.added}
    fewer = {label_of(worse.row) for worse in boards.worse}
    for row in after.rows:
        key = frozenset(row.runs)
        if key in added:
            continue
        pair = changed.get(key)
        old_row = earlier.get(key, row) if pair is None else pair.old
        was = old_row.verdict
        change: dict[str, Any] = {} if pair is None else _change(pair, boards.new)
        change |= _standing(old_row, row)
        if was != row.verdict:
            change["verdict"] = [was, row.verdict]
        if change:
            found.changed.append({"row": label_of(row), **change})
        if row.lacking and not old_row.lacking and label_of(row) not in fewer:  # whose seeds say why
            found.worse.append((label_of(row), f"loses its rank: {lacking(row)}"))
        if STRENGTH.get(row.verdict, len(STRENGTH)) > STRENGTH.get(was, len(STRENGTH)):
            found.worse.append((label_of(row), f"{row.verdict or 'nothing'} instead of {was}"))
    found.worse += [(label_of(worse.row), _why(worse.reasons, boards.changed)) for worse in boards.worse]
    return found


def protocol_of(board: Board) -> Protocol | None:
    """Return the protocol of a table of runs, None for one of scored predictions alone."""
    return next((protocol for protocol in PROTOCOLS if protocol == board.protocol), None)


def _change(pair: ChangedRow, board: Board) -> dict[str, Any]:
    change: dict[str, Any] = {}
    for column in board.columns:
        cells = [row.metrics.get(column.name) for row in (pair.old, pair.row)]
        means = [None if cell is None else cell.mean for cell in cells]
        if None not in cells and means[0] != means[1]:  # a column that comes or goes changes no row
            change[column.name] = means
    if pair.old.runs != pair.row.runs:
        change["seeds"] = [pair.old.n, pair.row.n]
    return change


def _shown_too(board: Board, other: Board) -> Board:
    """Return a board with the columns of another one added."""
    return replace(board, columns=tuple(dict.fromkeys((*board.columns, *other.columns))))


def _standing(old: Row, new: Row) -> dict[str, Any]:
    """Return what differs in how two rows are ranked and marked: {"rank", "star" or "best": [old, new]}."""
    sides = [
        {
            "rank": lacking(row) or "ranked",
            "star": "yes" if row.competitive else "no",
            "best": ", ".join(name for name, cell in row.metrics.items() if cell.best) or "none",
        }
        for row in (old, new)
    ]
    return {name: [sides[0][name], sides[1][name]] for name in sides[0] if sides[0][name] != sides[1][name]}


def _why(reasons: Sequence[str], changed: Sequence[ChangedRow]) -> str:
    """Return why a row is worse; for one that disappears, in which settings the others differ now."""
    shared = dict.fromkeys(str(spec) for row in changed for spec in row.specs if not spec.key.startswith(ABOUT_THE_ROW))
    other = f", as the runs have other settings: {', '.join(list(shared)[:SHOWN])}" if shared else ""
    return "; ".join(f"{reason}{other}" if reason == "removed" else reason for reason in reasons)


def _shown(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, float) else str(value)
