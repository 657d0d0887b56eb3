"""Each row of a table against the best competitive row and against cross-entropy of its type, by seed."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from hierbench.leaderboard.board import Board
from hierbench.leaderboard.columns import Column
from hierbench.leaderboard.paired import Difference, difference, holm
from hierbench.leaderboard.power import effect_of_values, seeds_needed
from hierbench.leaderboard.render import ordered_rows, shown_columns
from hierbench.leaderboard.statistics import Row

BASELINE = "ce"
BEST = "the best competitive row"
OF_TYPE = "cross-entropy of its type"


@dataclass(frozen=True)
class Gap:
    """The difference of two rows in one metric.

    Attributes:
        seeds: of each row that give 80 % power for this difference; None for more than 1,000.
    """

    column: Column
    difference: Difference
    row: dict[int, float]
    reference: dict[int, float]
    seeds: int | None


@dataclass(frozen=True)
class Pair:
    """A row, what it is compared with and why, and the metrics in which both have two seeds or more."""

    row: Row
    reference: Row
    why: str
    gaps: tuple[Gap, ...]


def best_row(rows: Sequence[Row]) -> Row | None:
    """Return the competitive row with the most best cells, of equal ones that of the smallest mistake severity."""

    def place(row: Row) -> tuple[int, float]:
        severity = row.metrics["mistake_severity"].mean
        return -sum(cell.best for cell in row.metrics.values()), math.inf if severity is None else severity

    return min((row for row in rows if row.competitive), key=place, default=None)


def values_of(row: Row, name: str) -> dict[int, float]:
    """Return {seed: value} of a row's finished runs in one metric."""
    cell = row.metrics.get(name)
    same = cell is not None and len(cell.values) == len(row.seeds)
    return dict(zip(row.seeds, cell.values, strict=True)) if cell is not None and same else {}


def pairs_of(board: Board) -> list[Pair]:
    """Return the comparisons of a board, in the order of its rows; p is adjusted by Holm over each reference's rows."""
    rows = [row for row in ordered_rows(board) if not row.scored and row.citation is None]
    best, baselines = best_row(rows), _baselines(rows)
    found: list[Pair] = []
    columns = shown_columns(board)
    of_best = [(row, best) for row in rows if best is not None and row is not best]
    of_type = [(row, other) for row in rows if (other := baselines.get(row.type)) is not None and row is not other]
    for why, pairs in ((BEST, of_best), (OF_TYPE, of_type)):
        found += _compared(pairs, columns, why)
    place = {id(row): number for number, row in enumerate(rows)}
    unique: dict[tuple[int, int], Pair] = {}
    for pair in found:
        key = (place[id(pair.row)], place[id(pair.reference)])
        unique[key] = replace(unique[key], why=f"{BEST} and {OF_TYPE}") if key in unique else pair
    return [unique[key] for key in sorted(unique)]


def _baselines(rows: Sequence[Row]) -> dict[str, Row]:
    """Return the row of cross-entropy of each type that has one and no second."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        if row.method == BASELINE:
            found.setdefault(row.type, []).append(row)
    return {kind: of_type[0] for kind, of_type in found.items() if len(of_type) == 1}


def _compared(pairs: Sequence[tuple[Row, Row]], columns: Sequence[Column], why: str) -> list[Pair]:
    per_pair: list[list[Gap]] = [[] for _ in pairs]
    for column in columns:
        found = []
        for place, (row, other) in enumerate(pairs):
            values, references = values_of(row, column.name), values_of(other, column.name)
            if (gap := difference(values, references)) is not None:
                found.append((place, gap, values, references))
        adjusted = holm([gap.p for _, gap, _, _ in found])
        for (place, gap, values, references), p in zip(found, adjusted, strict=True):
            effect = effect_of_values(values, references)
            seeds = seeds_needed(effect) if effect else None
            per_pair[place].append(Gap(column, replace(gap, p_holm=p), values, references, seeds))
    return [Pair(row, other, why, tuple(gaps)) for (row, other), gaps in zip(pairs, per_pair, strict=True)]
