"""The order of methods over image sets: mean ranks, and which pairs of methods differ."""

from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import rankdata

from hierbench.leaderboard.columns import PAPER_BY_NAME
from hierbench.leaderboard.paired import holm
from hierbench.leaderboard.set_tests import TEST_LEVEL, signed_rank_p
from hierbench.leaderboard.verdict import CHOICE_NETWORK, VerdictRows

RANK_METRICS = ("hierdist@1", "mistake_severity", "top1")


class RowRank(NamedTuple):
    """A row with its mean rank, 1 for the best, and the seconds of one of its trainings."""

    name: str
    title: str
    mean_rank: float
    seconds: float


class RankOrder(NamedTuple):
    """The rows of a metric by mean rank over n sets, the best first, and the pairs that do not differ."""

    rows: list[RowRank]
    undecided: list[tuple[str, str]]
    n: int


def rank_rows(evidence: VerdictRows, metric: str, seconds: dict[str, float] | None = None) -> RankOrder:
    """Return the order of the protocol's ranked rows on its first network, over the sets that have all of them.

    A pair differs if its signed-rank test over sets, of differences in the metric, has p below 0.05 after Holm's
    correction over all pairs (Benavoli, Corani & Mangili, JMLR 17, 2016).
    """
    names = evidence.protocol.ranks
    all_rows = evidence.rows[CHOICE_NETWORK].values()
    tables = [rows for rows in all_rows if all(_mean(rows, name, metric) for name in names)]
    if not tables:
        return RankOrder([], [], 0)
    sign = -1.0 if PAPER_BY_NAME[metric].higher else 1.0
    values = np.array([[sign * _mean(rows, name, metric) for name in names] for rows in tables])  # [sets, rows]
    ranks = rankdata(values, axis=1).mean(axis=0)
    pairs = list(combinations(range(len(names)), 2))
    corrected = holm([signed_rank_p(values[:, i] - values[:, j]) for i, j in pairs])
    undecided = [(names[i], names[j]) for (i, j), p in zip(pairs, corrected, strict=True) if p >= TEST_LEVEL]
    title_of = {name: tables[0][name].title for name in names}
    rows = [
        RowRank(names[place], title_of[names[place]], float(ranks[place]), (seconds or {}).get(names[place], np.nan))
        for place in np.argsort(ranks, kind="stable")
    ]
    return RankOrder(rows, undecided, len(tables))


def _mean(rows: Any, name: str, metric: str) -> float:
    """Return a row's mean, 0 without one; no metric of a trained row is 0."""
    cell = rows[name].metrics.get(metric) if name in rows else None
    return 0.0 if cell is None or cell.mean is None else float(cell.mean)


def rank_content(evidence: VerdictRows) -> dict[str, Any]:
    """Return the order by each metric for JSON."""
    content = {}
    for metric in RANK_METRICS:
        order = rank_rows(evidence, metric)
        rows = [{"row": row.name, "mean_rank": row.mean_rank} for row in order.rows]
        content[metric] = {"n": order.n, "rows": rows, "undecided": order.undecided}
    return content
