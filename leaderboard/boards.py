"""Two boards of one comparison, old and new: rows that came, went, changed or got worse.

Both are made from their records; what their .md and .json say is not read.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from hierbench.config.scored import is_scored
from hierbench.leaderboard.board import Board
from hierbench.leaderboard.changes import spec_changes, value_text
from hierbench.leaderboard.letters import listed
from hierbench.leaderboard.paired import Comparison, adjusted, differences
from hierbench.leaderboard.statistics import Row
from hierbench.utils.errors import UserError

Side = tuple[Board, Path]
SAME = {  # what two boards must share: key of a spec, what it is called
    "dataset.name": "dataset",
    "protocol": "protocol",
    "dataset.hierarchy": "tree (digest)",
    "dataset.distance": "distance",
    "dataset.digest": "data and splits (digest)",
    "dataset.jpeg_quality": "data (JPEG quality)",
    "evaluation.drop_last": "test split (drop_last)",
    "evaluation.drop_order": "test split (drop_order)",
}


@dataclass(frozen=True)
class BoardDifference:
    """New board against old; rows are in the order of a table.

    Attributes:
        new: the newer board.
        added, removed: rows that only one board has.
        changed: rows that both have and whose runs are not the same, the old one as reference; p is adjusted over all
            of the board, and there are no differences where only specs or environments changed.
        worse: rows that got worse, with the reasons; the old one where it is gone.
    """

    new: Board
    added: tuple[Row, ...]
    removed: tuple[Row, ...]
    changed: tuple[Comparison, ...]
    worse: tuple[tuple[Row, tuple[str, ...]], ...]

    @property
    def same(self) -> bool:
        """Whether there is no difference."""
        return not (self.added or self.removed or self.changed)


def differences_of(old: Side, new: Side) -> BoardDifference:
    """Compare two boards, each with its records and how messages call it.

    Raises:
        UserError: they are of different datasets, trees, distances, data or protocols.
    """
    (old_board, _), (new_board, _) = old, new
    _check_comparable(old, new)
    pairs, removed, added = _matched(old_board, new_board)
    names = [column.name for column in new_board.columns]
    found = adjusted([differences(after, before, names) if _moved(before, after) else {} for before, after in pairs])
    changed = tuple(
        Comparison(after, before, of_row, specs)
        for (before, after), of_row in zip(pairs, found, strict=True)
        if (specs := tuple(spec_changes(before, old_board.records, after, new_board.records))) or _moved(before, after)
    )
    worse = [(pair.row, reasons) for pair in changed if (reasons := tuple(_reasons(pair, new_board)))]
    worse += [(row, ("removed",)) for row in removed]
    return BoardDifference(new_board, tuple(added), tuple(removed), changed, tuple(worse))


def _check_comparable(old: Side, new: Side) -> None:
    """Raise a UserError that names in what two boards differ that must not."""
    one, other = (_shared(board) for board, _ in (old, new))
    wrong = [
        f"{title} {value_text(one[key])} -> {value_text(other[key])}"
        for key, title in SAME.items()
        if key in one and key in other and one[key] != other[key]
    ]
    if wrong:
        raise UserError(f"{old[1]} and {new[1]} cannot be compared, they differ in: {', '.join(wrong)}")


def _shared(board: Board) -> dict[str, object]:
    """Return the values of a board's records that make it comparable; scored predictions have only some."""
    content = board.records[board.rows[0].runs[0]].content
    found: dict[str, object] = {"protocol": board.protocol}
    for key in SAME:
        section, _, name = key.partition(".")
        if name and name in content.get(section, {}):
            found[key] = content[section][name]
    if is_scored(content):
        del found["protocol"]
    return found


def _matched(old: Board, new: Board) -> tuple[list[tuple[Row, Row]], list[Row], list[Row]]:
    """Return pairs of rows of one type and method, the rows left of the old board, and those left of the new one.

    Where either board has several rows of a method, those of equal hyperparameters are a pair.
    """
    pairs, added, left = [], [], {id(row): row for row in old.rows}
    mine, theirs = _by_name(new), _by_name(old)
    for row in new.rows:
        found = theirs.get(_name(row), [])
        if len(mine[_name(row)]) > 1 or len(found) > 1:
            params = _params(row, new)
            found = [one for one in found if _params(one, old) == params]
        match = next((one for one in found if id(one) in left), None)
        if match is None:
            added.append(row)
        else:
            pairs.append((left.pop(id(match)), row))
    return pairs, list(left.values()), added


def _by_name(board: Board) -> dict[tuple[bool, str, str], list[Row]]:
    found: dict[tuple[bool, str, str], list[Row]] = {}
    for row in board.rows:
        found.setdefault(_name(row), []).append(row)
    return found


def _name(row: Row) -> tuple[bool, str, str]:
    return row.scored, row.type, row.method


def _params(row: Row, board: Board) -> object:
    """Return the hyperparameters of a row's runs."""
    return board.records[row.runs[0]].content.get("method", {}).get("params")


def _moved(old: Row, new: Row) -> bool:
    """Whether two rows have other runs, or the same with other results."""
    sides = [
        (sorted(row.runs), row.seeds, {name: repr(cell.values) for name, cell in row.metrics.items()})
        for row in (old, new)
    ]
    return sides[0] != sides[1]  # by text: NaN is equal to itself


def _reasons(pair: Comparison, board: Board) -> Iterable[str]:
    """Yield why a row is worse than it was."""
    if lost := [seed for seed in pair.reference.seeds if seed not in pair.row.seeds]:
        yield f"lost seed{'s' if len(lost) > 1 else ''} {listed(lost)}"
    elif pair.row.n < pair.reference.n:
        yield f"{pair.row.n} runs instead of {pair.reference.n}"
    for column in board.columns:
        gap = pair.differences.get(column.name)
        if gap is not None and gap.significant and (gap.mean < 0) == column.higher:
            digits = column.digits
            yield f"{column.title} {gap.mean:+.{digits}f} +/- {gap.ci95:.{digits}f} (p {gap.p_holm:.2g})"
