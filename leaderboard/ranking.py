"""Which rows of a table are ranked, and the marks of those: every board gets them here.

A row that lacks seeds of the table has a wider interval, and its seeds may have been chosen: it is shown, not ranked.
So is one that is claimed or rejected, whose seeds exclude no other row.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace

from hierbench.leaderboard.columns import PAPER_COLUMNS, Column
from hierbench.leaderboard.statistics import Row, highlighted, on_ranked


def rank(
    rows: Sequence[Row], planned: int | None = None, columns: Sequence[Column] = PAPER_COLUMNS
) -> tuple[tuple[Row, ...], tuple[int, ...]]:
    """Return the rows with the seeds that each lacks and the marks of the others, and the seeds of the table.

    Args:
        rows: of runs, of a published table, or scored.
        planned: number of seeds in the dataset's recipe; None takes the number that most rows have planned.
        columns: of the table.
    """
    counted = [row for row in rows if row.runs and not row.scored and row.is_ranked]
    if planned is None:
        counts = Counter(row.planned for row in counted)
        planned = max(counts, key=lambda number: (counts[number], number), default=0)
    seeds = table_seeds([row.seeds for row in counted], planned)
    rows = [
        replace(row, lacking=tuple(seed for seed in seeds if seed not in row.seeds))
        if row.runs and not row.scored
        else row
        for row in rows
    ]
    return mark_rows(rows, columns), seeds


def mark_rows(rows: Sequence[Row], columns: Sequence[Column]) -> tuple[Row, ...]:
    """Return the rows with the marks of a table, competitive and best cells, in place of earlier marks."""
    plain = [
        replace(
            row,
            competitive=False,
            metrics={name: replace(cell, best=False, leads=False) for name, cell in row.metrics.items()},
        )
        for row in rows
    ]
    return on_ranked(plain, lambda ranked: highlighted(ranked, columns))


def table_seeds(seeds_by_row: Sequence[Collection[int]], planned: int) -> tuple[int, ...]:
    """Return the seeds required for ranking: the seeds below `planned` of the most complete row.

    Seeds from `planned` on do not count, so that further seeds of some rows exclude no other row. If several rows are
    most complete with different seeds, the seeds that most of them have are taken.

    Args:
        seeds_by_row: the seeds of each row's finished runs.
        planned: number of seeds.
    """
    seed_sets = Counter(
        tuple(sorted({seed for seed in row_seeds if 0 <= seed < planned})) for row_seeds in seeds_by_row
    )
    return min(seed_sets, key=lambda seeds: (-len(seeds), -seed_sets[seeds], seeds), default=())
