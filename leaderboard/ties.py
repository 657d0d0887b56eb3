"""Which rows of a table differ: the arrows against cross-entropy, and tie groups of all pairs in place of strict ranks.

The tests of the tie groups are all pairs of a table's rows in all its columns, those of the arrows each row against
cross-entropy of its type. Holm's correction is over all tests of either: a table of equal methods shows any difference
at all with a probability of at most 5 %.

C: columns, R: rows, S: seeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import comb, stdtr

from hierbench.leaderboard.columns import Column
from hierbench.leaderboard.letters import MOST_ROWS, letter, tie_groups
from hierbench.leaderboard.paired import ROUNDING, SIGNIFICANT, holm, named_rows
from hierbench.leaderboard.statistics import Row, ranked_rows
from hierbench.utils.errors import UserError

if TYPE_CHECKING:
    from hierbench.leaderboard.board import Board


BASELINE = "ce"  # cross-entropy, which knows nothing of the tree
Versus = Literal["", "better", "worse"]
BETTER: dict[bool, Versus] = {True: "better", False: "worse"}


@dataclass(frozen=True)
class Arrows:
    """Where the rows of a table differ significantly from cross-entropy of their type.

    Attributes:
        of: {(`id` of a row, metric): "better" or "worse"}.
        number: of tests.
    """

    of: dict[tuple[int, str], Versus]
    number: int


@dataclass(frozen=True)
class Family:
    """All tests of a table.

    Attributes:
        p: after Holm's correction over all tests [C, R, R], of the first row against the second; NaN for no test.
        differ: whether two rows differ [C, R, R].
        known: whether a row was compared with any other [C, R].
        number: of tests.
        num_welch: those of them of rows that share fewer than two seeds.
    """

    p: NDArray[np.float64]
    differ: NDArray[np.bool_]
    known: NDArray[np.bool_]
    number: int
    num_welch: int


@dataclass(frozen=True)
class Ties:
    """Rows of a table in the order of one metric, best first, with the groups that each belongs to.

    Attributes:
        column: the metric.
        rows: those that were not compared come last.
        groups: per row the letters of its groups, "a" is that of the best row; () for one that was not compared.
        family: the tests of all columns, over which p is adjusted.
    """

    column: Column
    rows: Sequence[Row]
    groups: Sequence[tuple[str, ...]]
    family: Family


def arrows_of(board: Board) -> Arrows:
    """Compare the ranked rows of a board with cross-entropy of their type, by the table's seeds in all its columns.

    There is no test of one seed, and none in a type with no row of cross-entropy, or with several.
    """
    rows, columns = ranked_rows(board.rows), board.shown
    if not rows or not columns or len(board.seeds) < 2:
        return Arrows({}, 0)
    values, p = values_of(rows, columns, board.seeds), np.full((len(columns), len(rows)), np.nan)
    gaps = np.zeros_like(p)
    for kind, base in baselines(rows).items():
        of_type = [place for place, row in enumerate(rows) if row.type == kind]
        own = [place for place in of_type if rows[place] is not base]
        reference = values[:, [place for place in of_type if rows[place] is base]]
        p[:, own], _ = _p_of(reference, values[:, own])
        with np.errstate(divide="ignore", invalid="ignore"):  # a metric of which a row has no value
            gaps[:, own] = _moments(values[:, own])[1] - _moments(reference)[1]
    tested = ~np.isnan(p)
    p[tested] = holm(p[tested])
    found: dict[tuple[int, str], Versus] = {
        (id(rows[place]), columns[which].name): BETTER[bool(gaps[which, place] > 0) == columns[which].higher]
        for which, place in np.argwhere(p < SIGNIFICANT).tolist()
    }
    return Arrows(found, int(tested.sum()))


def baselines(rows: Sequence[Row]) -> dict[str, Row]:
    """Return the row of cross-entropy of each type that has one and no second."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        if row.method == BASELINE:
            found.setdefault(row.type, []).append(row)
    return {kind: of_type[0] for kind, of_type in found.items() if len(of_type) == 1}


def values_of(rows: Sequence[Row], columns: Sequence[Column], seeds: Sequence[int]) -> NDArray[np.float64]:
    """Return the values of these seeds [C, R, S], NaN where a row has none."""
    values = np.full((len(columns), len(rows), len(seeds)), np.nan)
    for place, row in enumerate(rows):
        held = [(number, row.seeds.index(seed)) for number, seed in enumerate(seeds) if seed in row.seeds]
        for which, column in enumerate(columns):
            cell = row.metrics.get(column.name)
            if cell is not None and len(cell.values) == len(row.seeds):
                for number, index in held:
                    values[which, place, number] = cell.values[index]
    return values


def with_letters(
    rows: Sequence[Row], columns: Sequence[Column], seeds: Sequence[int]
) -> tuple[Sequence[Row], Family | None]:
    """Return the rows with the letters of their cells, and the tests; none for rows without seeds or more than 100.

    Args:
        rows: of runs.
        columns: of the table.
        seeds: the values of these are compared. A row's further seeds do not count: whoever adds seeds while looking
            at the letters would find a difference sooner or later.
    """
    shown = [column for column in columns if any(column.name in row.metrics for row in rows)]
    if not shown or len(seeds) < 2 or not 2 <= len(rows) <= MOST_ROWS:
        return rows, None
    family, cells = family_of(values_of(rows, shown, seeds)), [dict(row.metrics) for row in rows]
    for which, column in enumerate(shown):
        order = sorted(map(int, np.flatnonzero(family.known[which])), key=lambda place: order_in(rows[place], column))
        groups: list[list[str]] = [[] for _ in order]
        for number, group in enumerate(tie_groups(family.differ[which][np.ix_(order, order)])):
            for member in group:
                groups[member].append(letter(number))
        for place, letters in zip(order, groups, strict=True):
            cells[place][column.name] = replace(cells[place][column.name], groups=tuple(letters))
    return [replace(row, metrics=of_row) for row, of_row in zip(rows, cells, strict=True)], family


def tied_rows(board: Board, column: Column, names: Sequence[str] = ()) -> Ties:
    """Return the groups of a board's ranked rows in one of its columns, as its table has them.

    Args:
        board: of runs.
        column: one of its columns.
        names: only these rows, METHOD or METHOD:TYPE, are compared with each other; by default all.

    Raises:
        UserError: no such row, nothing to compare, or too many rows.
    """
    rows: Sequence[Row] = ranked_rows(board.rows)
    if names:
        chosen = {id(row) for name in names for row in named_rows(board.rows, name)}
        if lacking := [row.title for row in board.rows if id(row) in chosen and row.lacking]:
            raise UserError(f"{lacking[0]} lacks seeds of the table and is in no group; compare it with a REFERENCE")
        if claimed := [row.title for row in board.rows if id(row) in chosen and row.verdict == "claimed"]:
            raise UserError(f"{claimed[0]} is only claimed, without predictions, and is in no group")
        rows = [row for row in rows if id(row) in chosen]
    if len(rows) > MOST_ROWS:
        raise UserError(f"{len(rows)} rows are more than the {MOST_ROWS} that are compared with each other; name some")
    rows, family = with_letters(rows, board.columns, board.seeds)
    found = [row.metrics[column.name].groups if column.name in row.metrics else () for row in rows]
    if family is None or not any(found):
        raise UserError(f"nothing to group: fewer than two rows have two seeds of the table with {column.name}")
    order = sorted(range(len(rows)), key=lambda place: (not found[place], order_in(rows[place], column)))
    return Ties(column, [rows[place] for place in order], [found[place] for place in order], family)


def family_of(values: NDArray[np.float64]) -> Family:
    """Test all pairs of rows in all columns at once.

    Args:
        values: [C, R, S], NaN where a row has none.
    """
    p, paired = pairwise_p(values)
    tested = np.triu(~np.isnan(p), 1)
    adjusted = np.full_like(p, np.nan)
    adjusted[tested] = holm(p[tested])
    differ: NDArray[np.bool_] = np.less(adjusted, SIGNIFICANT)
    differ |= differ.swapaxes(1, 2)
    return Family(adjusted, differ, ~np.all(np.isnan(p), axis=2), int(tested.sum()), int((tested & ~paired).sum()))


def pairwise_p(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Test every pair of rows, as `hierbench.leaderboard.paired.difference` does one.

    Args:
        values: [C, R, S], NaN where a row has none.

    Returns:
        The two-sided p [C, R, R], NaN on the diagonal and where a row has fewer than two values, not adjusted; and
        whether a pair is paired by seed [C, R, R].
    """
    num_columns, num_rows, _ = values.shape
    p = np.full((num_columns, num_rows, num_rows), np.nan)
    paired = np.zeros(p.shape, dtype=np.bool_)
    for i in range(num_rows - 1):  # a row against all after it: all differences at once are C x R x R x S
        p[:, i, i + 1 :], paired[:, i, i + 1 :] = _p_of(values[:, i : i + 1], values[:, i + 1 :])
        p[:, i + 1 :, i], paired[:, i + 1 :, i] = p[:, i, i + 1 :], paired[:, i, i + 1 :]
    return p, paired


def _p_of(one: NDArray[np.float64], others: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Test a row [C, 1, S] against others [C, R, S]; return p [C, R] and whether each is paired [C, R]."""
    with np.errstate(divide="ignore", invalid="ignore"):  # too few values, or no variance: replaced below
        count, mean, variance = _moments(one - others)
        (n, m, v), (other_n, other_m, other_v) = _moments(one), _moments(others)
        part, other_part = v / n, other_v / other_n
        welch = (part + other_part) ** 2 / (part**2 / (n - 1) + other_part**2 / (other_n - 1))
        paired = count >= 2
        error = np.sqrt(np.where(paired, variance / count, part + other_part))
        mean = np.where(paired, mean, m - other_m)
        p = 2.0 * stdtr(np.where(paired, count - 1, welch), -np.abs(mean) / error)
    largest = np.maximum(np.abs(np.nan_to_num(one)).max(axis=2), np.abs(np.nan_to_num(others)).max(axis=2))
    rounding = ROUNDING * largest
    least = np.where(paired, 0.5 ** (count - 1.0), 2.0 / comb(n + other_n, n))
    p = np.where(error <= rounding, np.where(np.abs(mean) <= rounding, 1.0, least), p)
    return np.where(paired | ((n >= 2) & (other_n >= 2)), p, np.nan), paired


def _moments(values: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """Return number, mean and variance (ddof 1) of the known values of each line."""
    known = ~np.isnan(values)
    count = known.sum(axis=-1)
    mean = np.where(known, values, 0.0).sum(axis=-1) / count
    squares = np.where(known, values - mean[..., None], 0.0) ** 2
    return count, mean, squares.sum(axis=-1) / (count - 1)


def order_in(row: Row, column: Column) -> tuple[bool, float]:
    """Return a key that is smaller for a better row; rows without a value come last."""
    mean = row.metrics[column.name].mean if column.name in row.metrics else None
    return mean is None, 0.0 if mean is None else -mean if column.higher else mean
