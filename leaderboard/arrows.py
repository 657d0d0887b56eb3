"""Where the rows of a table differ significantly from cross-entropy of their type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from hierbench.leaderboard.paired import baseline_tests

if TYPE_CHECKING:
    from hierbench.leaderboard.board import Board

Versus = Literal["", "better", "worse"]


@dataclass(frozen=True)
class Arrows:
    """Where the rows of a table differ significantly from cross-entropy of their type.

    Attributes:
        of: {(`id` of a row, metric): "better" or "worse"}.
        number: of tests.
    """

    of: dict[tuple[int, str], Versus]
    number: int


def arrows_of(board: Board) -> Arrows:
    """Return the directions of the significant tests of a board, see `baseline_tests`."""
    higher, tests = {column.name: column.higher for column in board.shown}, baseline_tests(board)
    directions: dict[tuple[int, str], Versus] = {
        (row, name): "better" if (gap.mean > 0) == higher[name] else "worse"
        for (row, name), gap in tests.items()
        if gap.significant
    }
    return Arrows(directions, len(tests))
