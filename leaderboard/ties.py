"""Tie groups in place of strict ranks: sets of rows of which no two differ significantly in one metric.

R: rows, S: seeds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr

from hierbench.leaderboard.board import Board
from hierbench.leaderboard.columns import Column
from hierbench.leaderboard.paired import SIGNIFICANT, holm, named_rows, values_by_seed
from hierbench.leaderboard.render import ordered_rows
from hierbench.leaderboard.statistics import Row
from hierbench.runs.store import Store
from hierbench.utils.errors import UserError

MOST_GROUPS = (
    1000  # the number of maximal groups can grow exponentially with the rows; real tables have fewer than rows
)


@dataclass(frozen=True)
class Ties:
    """Rows of a table in the order of one metric, best first, with the groups that each belongs to.

    Attributes:
        column: the metric.
        rows: those with fewer than two values come last.
        groups: per row the letters of its groups, "a" is that of the best row; () with fewer than two values.
        num_pairs: pairs of rows that were compared, over which p is adjusted.
        num_welch: those of them that share fewer than two seeds.
    """

    column: Column
    rows: list[Row]
    groups: list[tuple[str, ...]]
    num_pairs: int
    num_welch: int


def tied_rows(board: Board, store: Store, column: Column, names: Sequence[str] = ()) -> Ties:
    """Compare all pairs of rows of a board in one metric and group those that cannot be told apart.

    Args:
        board: of runs.
        store: where the runs are.
        column: one that the board has values of.
        names: only these rows, METHOD or METHOD:TYPE; by default all.

    Raises:
        UserError: no such row, or fewer than two rows with two values.
    """
    rows = [row for row in ordered_rows(board) if not row.scored]
    if names:
        chosen = {id(row) for name in names for row in named_rows(rows, name)}
        rows = [row for row in rows if id(row) in chosen]
    return ties_between(rows, [values_by_seed(row, store, [column.name])[column.name] for row in rows], column)


def ties_between(rows: Sequence[Row], values: Sequence[Mapping[int, float]], column: Column) -> Ties:
    """Group rows by their values, {seed: value} of each row; errors as in `tied_rows`."""
    p, paired = pairwise_p(values)
    upper = np.triu(~np.isnan(p), 1)
    if not upper.any():
        raise UserError(f"nothing to group: fewer than two rows have two runs with a value of {column.name}")
    adjusted = np.ones_like(p)
    adjusted[upper] = holm([float(value) for value in p[upper]])
    differ: NDArray[np.bool_] = np.less(np.minimum(adjusted, adjusted.T), SIGNIFICANT)
    known = ~np.all(np.isnan(p), axis=1)
    order = sorted(range(len(rows)), key=lambda i: (not known[i], _place(rows[i], column)))
    first = order[: int(known.sum())]
    groups: list[list[str]] = [[] for _ in order]
    for number, group in enumerate(tie_groups(differ[np.ix_(first, first)])):
        for place in group:
            groups[place].append(letter(number))
    num_welch = int((upper & ~paired).sum())
    return Ties(column, [rows[i] for i in order], list(map(tuple, groups)), int(upper.sum()), num_welch)


def pairwise_p(values: Sequence[Mapping[int, float]]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Test every pair of rows, as `hierbench.leaderboard.paired.difference` does one.

    Args:
        values: per row {seed: value}; NaN is left out.

    Returns:
        The two-sided p [R, R], NaN on the diagonal and where a row has fewer than two values, not adjusted; and
        whether a pair is paired by seed [R, R].
    """
    seeds = sorted({seed for of_row in values for seed in of_row})
    table = np.array([[of_row.get(seed, np.nan) for seed in seeds] for of_row in values], dtype=np.float64)
    p = np.full((len(values), len(values)), np.nan)
    paired = np.zeros(p.shape, dtype=np.bool_)
    for i in range(len(values) - 1):  # a row against all after it: all differences at once are R x R x S
        p[i, i + 1 :], paired[i, i + 1 :] = _p_of(table[i : i + 1], table[i + 1 :])
    lower = np.tril_indices(len(values), -1)
    p[lower], paired[lower] = p.T[lower], paired.T[lower]
    return p, paired


def _p_of(one: NDArray[np.float64], others: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Test one row [1, S] against others [R, S]; return p [R] and whether each is paired [R]."""
    with np.errstate(divide="ignore", invalid="ignore"):  # too few values, or no variance: replaced below
        count, mean, variance = _moments(one - others)
        (n, m, v), (other_n, other_m, other_v) = _moments(one), _moments(others)
        part, other_part = v / n, other_v / other_n
        welch = (part + other_part) ** 2 / (part**2 / (n - 1) + other_part**2 / (other_n - 1))
        paired = count >= 2
        error = np.sqrt(np.where(paired, variance / count, part + other_part))
        mean = np.where(paired, mean, m - other_m)
        p = 2.0 * stdtr(np.where(paired, count - 1, welch), -np.abs(mean) / error)
    p = np.where(error == 0, mean == 0, p)
    return np.where(paired | ((n >= 2) & (other_n >= 2)), p, np.nan), paired


def _moments(values: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """Return number, mean and variance (ddof 1) of the known values of each line."""
    known = ~np.isnan(values)
    count = known.sum(axis=1)
    mean = np.where(known, values, 0.0).sum(axis=1) / count
    squares = np.where(known, values - mean[:, None], 0.0) ** 2
    return count, mean, squares.sum(axis=1) / (count - 1)


def tie_groups(differ: NDArray[np.bool_]) -> list[list[int]]:
    """Return groups of rows of which no two differ, so that any two rows that do not differ share one.

    A compact letter display (Piepho, J. Comput. Graph. Stat. 13, 2004). Every group is maximal, but not all maximal
    groups are needed, and their number can grow exponentially, with it that of the paper's insert-and-absorb steps.
    Here groups are grown from pairs that share none yet, and those whose pairs are all in others are left out (clique
    growing: Gramm et al., Comput. Stat. Data Anal. 52, 2007).

    Args:
        differ: whether two rows differ [R, R], symmetric, in the order of the rows.

    Returns:
        The members of each group, those of the first rows first.
    """
    tied = [sum(1 << int(other) for other in np.flatnonzero(~line)) & ~(1 << row) for row, line in enumerate(differ)]
    together = np.zeros(differ.shape, dtype=np.int32)  # the groups that hold both rows
    groups: list[list[int]] = []

    def grow(group: list[int], common: int) -> None:
        while common:  # the best row that is tied with all
            group.append((common & -common).bit_length() - 1)
            common &= tied[group[-1]]
        groups.append(sorted(group))
        together[np.ix_(group, group)] += 1

    for row, of_row in enumerate(tied):
        if not of_row:
            grow([row], 0)
        for other in range(row + 1, len(tied)):
            if of_row >> other & 1 and not together[row, other]:
                grow([row, other], of_row & tied[other])
    kept = []
    for group in groups:
        block = np.ix_(group, group)
        if len(group) > 1 and (together[block][~np.eye(len(group), dtype=np.bool_)] > 1).all():
            together[block] -= 1
        else:
            kept.append(group)
    return sorted(kept)


def letter(number: int) -> str:
    """Return the name of a group, counted from 0: a to z, then aa, ab, ..."""
    text = ""
    number += 1
    while number:
        number, rest = divmod(number - 1, 26)
        text = chr(ord("a") + rest) + text
    return text


def _place(row: Row, column: Column) -> tuple[bool, float]:
    """Return a key that is smaller for a better row; rows without a value come last."""
    mean = row.metrics[column.name].mean if column.name in row.metrics else None
    return mean is None, 0.0 if mean is None else -mean if column.higher else mean
