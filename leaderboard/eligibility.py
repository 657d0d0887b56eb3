"""Which rows of a table may take its marks: those that have all of its seeds.

A row with fewer seeds has a wider interval, and its seeds may have been chosen.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from hierbench.leaderboard.board import Board
from hierbench.leaderboard.statistics import Row, highlight, mark_best
from hierbench.runs.store import Store


@dataclass(frozen=True)
class Eligibility:
    """A board whose marks are among the rows with all of the table's seeds.

    Attributes:
        board: with new rows, in the same order; the rows of the board it was made of keep their marks.
        seeds: of the table.
        lacking: per row of the board the seeds that it lacks; () for a row that is ranked, and for one that is none of
            runs (scored or cited), whose marks are kept.
    """

    board: Board
    seeds: tuple[int, ...]
    lacking: list[tuple[int, ...]]


def finished_seeds(row: Row, store: Store) -> list[int]:
    """Return the seeds of a row's finished runs."""
    return [int(run.spec()["seed"]) for run in map(store.run, row.runs) if run.done]


def table_seeds(held: Sequence[Collection[int]], planned: int) -> tuple[int, ...]:
    """Return the seeds that a row needs to be ranked: of those below `planned`, what the most complete row has.

    Seeds from `planned` on do not count, so that further seeds of some rows exclude none of the others. Where several
    rows are most complete with different seeds, those that most of them have are taken.

    Args:
        held: the seeds of each row's finished runs.
        planned: number of seeds in the dataset's recipe.
    """
    sets = Counter(tuple(sorted({seed for seed in of_row if 0 <= seed < planned})) for of_row in held)
    return min(sets, key=lambda seeds: (-len(seeds), -sets[seeds], seeds), default=())


def eligible(board: Board, planned: int, held: Sequence[Collection[int]] | None = None) -> Eligibility:
    """Apply the 0.05 rule among the rows of a board that have all of the table's seeds; no other row is marked.

    Args:
        board: of runs, or a published table.
        planned: number of seeds in the dataset's recipe.
        held: the seeds of each row's finished runs, see `finished_seeds`; by default as many from 0 on as it has runs,
            which is all that is known of a published table.
    """
    seeds_of = [range(row.n) for row in board.rows] if held is None else held
    with_runs = [not row.scored and row.citation is None for row in board.rows]
    needed = table_seeds([seeds for seeds, ours in zip(seeds_of, with_runs, strict=True) if ours], planned)
    lacking = [
        tuple(seed for seed in needed if seed not in seeds) if ours else ()
        for seeds, ours in zip(seeds_of, with_runs, strict=True)
    ]
    rows = [_unmarked(row) if ours else row for row, ours in zip(board.rows, with_runs, strict=True)]
    ranked = [row for row, ours, missing in zip(rows, with_runs, lacking, strict=True) if ours and not missing]
    highlight(ranked)
    mark_best([row for row in ranked if row.competitive], board.columns)
    return Eligibility(replace(board, rows=rows), needed, lacking)


def _unmarked(row: Row) -> Row:
    cells = {name: replace(cell, best=False) for name, cell in row.metrics.items()}
    return replace(row, competitive=False, metrics=cells)
