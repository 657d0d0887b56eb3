"""Which rows of a table are ranked, and the marks and letters of those: every board gets them here.

A row that lacks seeds of the table has a wider interval, and its seeds may have been chosen: it is shown, not ranked.
So is one that is claimed or rejected, whose seeds exclude no other row.
"""

from collections import Counter
from collections.abc import Collection, Sequence

from hierbench.leaderboard.columns import PAPER, Column
from hierbench.leaderboard.statistics import UNRANKED, Row, highlight, mark_best, ranked_rows
from hierbench.leaderboard.ties import group_rows


def rank(rows: Sequence[Row], planned: int | None = None, columns: Sequence[Column] = PAPER) -> tuple[int, ...]:
    """Say which seeds each row lacks, mark the others, and return the seeds of the table; () without any.

    Args:
        rows: of runs, of a published table, or scored.
        planned: number of seeds in the dataset's recipe; None takes the number that most rows have planned.
        columns: of the table.
    """
    with_runs = [row for row in rows if row.runs and not row.scored]
    counted = [row for row in with_runs if row.verdict not in UNRANKED]
    if planned is None:
        counts = Counter(row.planned for row in counted)
        planned = max(counts, key=lambda number: (counts[number], number), default=0)
    seeds = table_seeds([row.seeds for row in counted], planned)
    for row in with_runs:
        row.lacking = [seed for seed in seeds if seed not in row.seeds]
    mark(rows, columns, seeds)
    return seeds


def mark(rows: Sequence[Row], columns: Sequence[Column], seeds: Sequence[int]) -> None:
    """Mark the competitive among the ranked rows, their best cells, and the tie groups, whatever was marked before."""
    for row in rows:
        row.competitive = False
        for cell in row.metrics.values():
            cell.best, cell.groups = False, ()
    ranked = ranked_rows(rows)
    highlight(ranked)
    mark_best([row for row in ranked if row.competitive], columns)
    group_rows(ranked, columns, seeds)


def table_seeds(held: Sequence[Collection[int]], planned: int) -> tuple[int, ...]:
    """Return the seeds that a row needs to be ranked: of those below `planned`, what the most complete row has.

    Seeds from `planned` on do not count, so that further seeds of some rows exclude none of the others. Where several
    rows are most complete with different seeds, those that most of them have are taken.

    Args:
        held: the seeds of each row's finished runs.
        planned: number of seeds.
    """
    sets = Counter(tuple(sorted({seed for seed in of_row if 0 <= seed < planned})) for of_row in held)
    return min(sets, key=lambda seeds: (-len(seeds), -sets[seeds], seeds), default=())
