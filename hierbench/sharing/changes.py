"""What a new publication of a table changes, what of that is worse, and the list of it, `<dataset>-changes.json`."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import BaseModel, OnErrorOmit, TypeAdapter

from hierbench.leaderboard.board import Board
from hierbench.leaderboard.boards import BoardDifference, differences_of
from hierbench.leaderboard.paired import Comparison
from hierbench.leaderboard.statistics import Row
from hierbench.leaderboard.tables.board import lacking
from hierbench.sharing.place import CHANGES
from hierbench.sharing.verification.tables import STRENGTH
from hierbench.utils.files import read_json, write_json
from hierbench.utils.text import one_line

ABOUT_THE_ROW = ("method.", "environment.", "train.lr")  # keys of a spec in which rows of one table may differ
SHOWN = 3  # settings named in a line


class Entry(BaseModel):
    """How a publication differs from the one before it; rows are METHOD:TYPE.

    Attributes:
        date: time of the publication.
        added: rows.
        removed: rows.
        changed: {"row": its name, metric or "seeds", "verdict", "rank", "star" or "best": [old, new]} of rows that both
            have.
        because: why rows got worse.
    """

    date: str = ""
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[dict[str, str | tuple[Any, Any]], ...] = ()
    because: str = ""

    @property
    def lines(self) -> list[str]:
        """A line per row that differs."""
        changed = [
            f"changed {one.get('row')}: "
            + ", ".join(f"{name} {_shown(pair[0])} -> {_shown(pair[1])}" for name, pair in one.items() if name != "row")
            for one in self.changed
        ]
        return [*(f"added {row}" for row in self.added), *changed, *(f"removed {row}" for row in self.removed)]


@dataclass(frozen=True)
class Changes:
    """How a table differs from an earlier one.

    Attributes:
        entry: without date and reason.
        worse: (row, why).
        boards: the comparison of the records; None where there was no earlier table.
    """

    entry: Entry
    worse: Sequence[tuple[str, str]] = ()
    boards: BoardDifference | None = None

    def lines(self) -> list[str]:
        """Return a line per row that differs, or one that says that none does."""
        return self.entry.lines or ["no row changes"]


def read_changes(folder: Path, dataset: str) -> list[Entry]:
    """Return the publications of a table, newest first, without entries that cannot be read."""
    try:
        content = read_json(_file(folder, dataset))
    except (OSError, ValueError):
        return []
    return TypeAdapter(list[OnErrorOmit[Entry]]).validate_python(content if isinstance(content, list) else [])


def write_changes(folder: Path, dataset: str, found: Changes, because: str = "", earlier: Sequence[Entry] = ()) -> None:
    """Write the list with a new first entry, unless nothing has changed."""
    now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    entry = found.entry.model_copy(update={"date": now, "because": because})
    write_json(_file(folder, dataset), [one.model_dump() for one in ([entry] if entry.lines else []) + [*earlier]])


def _file(folder: Path, dataset: str) -> Path:
    return folder / f"{dataset}{CHANGES}"


def label_of(row: Row) -> str:
    """Return how commands and cards name a row: METHOD:TYPE."""
    return one_line(f"{row.method}:{row.type}")


def first_changes(board: Board) -> Changes:
    """Return the changes of a table that had none before it."""
    return Changes(Entry(added=tuple(map(label_of, board.rows))))


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
    shown = replace(after, columns=tuple(dict.fromkeys((*after.columns, *before.columns))))
    boards = differences_of((before, old), (shown, new))
    same = {frozenset(row.runs): row for row in before.rows}
    moved, new_rows = {id(pair.row): pair for pair in boards.changed}, set(map(id, boards.added))
    fewer = {label_of(row) for row, _ in boards.worse}
    changed, worse = [], []
    for row in after.rows:
        if id(row) in new_rows:
            continue
        pair, label = moved.get(id(row)), label_of(row)
        earlier = same[frozenset(row.runs)] if pair is None else pair.reference
        change = ({} if pair is None else _change(pair, boards.new)) | _standing(earlier, row)
        if change:
            changed.append({"row": label, **change})
        if row.lacking and not earlier.lacking and label not in fewer:  # whose seeds say why
            worse.append((label, f"loses its rank: {lacking(row)}"))
        if _weakness(row) > _weakness(earlier):
            worse.append((label, f"{row.verdict or 'nothing'} instead of {earlier.verdict}"))
    worse += [(label_of(row), _why(reasons, boards.changed)) for row, reasons in boards.worse]
    added, removed = (tuple(map(label_of, rows)) for rows in (boards.added, boards.removed))
    return Changes(Entry(added=added, removed=removed, changed=tuple(changed)), worse, boards)


def _change(pair: Comparison, board: Board) -> dict[str, Any]:
    """Return which means and numbers of seeds differ: {metric or "seeds": (old, new)}."""
    change: dict[str, Any] = {}
    for column in board.columns:
        cells = [row.metrics.get(column.name) for row in (pair.reference, pair.row)]
        means = tuple(None if cell is None else cell.mean for cell in cells)
        if None not in cells and means[0] != means[1]:  # a column that comes or goes changes no row
            change[column.name] = means
    if pair.reference.runs != pair.row.runs:
        change["seeds"] = (pair.reference.n, pair.row.n)
    return change


def _standing(old: Row, new: Row) -> dict[str, Any]:
    """Return what differs in how two rows are ranked, marked and proven: {"rank", "star", ...: (old, new)}."""
    one, other = (
        {
            "rank": lacking(row) or "ranked",
            "star": "yes" if row.competitive else "no",
            "best": ", ".join(name for name, cell in row.metrics.items() if cell.best) or "none",
            "verdict": row.verdict,
        }
        for row in (old, new)
    )
    return {name: (one[name], other[name]) for name in one if one[name] != other[name]}


def _weakness(row: Row) -> int:
    return STRENGTH.get(row.verdict, len(STRENGTH))


def _why(reasons: Sequence[str], changed: Sequence[Comparison]) -> str:
    """Return why a row is worse; for one that disappears, in which settings the others differ now."""
    shared = dict.fromkeys(str(one) for row in changed for one in row.changes if not one.key.startswith(ABOUT_THE_ROW))
    other = f", as the runs have other settings: {', '.join(list(shared)[:SHOWN])}" if shared else ""
    return "; ".join(f"{reason}{other}" if reason == "removed" else reason for reason in reasons)


def _shown(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, float) else str(value)
