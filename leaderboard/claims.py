"""Claims of a paper, tested on a table and over tables.

The claims of claims.toml were stated before the trainings. They are a family of their own: on a table and over tables,
p is corrected (Holm) over the claims, not over the cells of the table as its arrows are.

A claim of no loss is one of equivalence: the loss is smaller than a margin, by a one-sided test against it (Schuirmann,
J. Pharmacokinetics and Biopharmaceutics 15, 1987). Over tables the unit is the set of images (Demsar, JMLR 7, 2006):
tables of the same images are averaged first.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from typing import Literal

import numpy as np
from pydantic import Field, TypeAdapter
from scipy import stats

from hierbench.config.recipe import image_dataset
from hierbench.config.sections import PAPER_METHODS
from hierbench.config.validation import Closed
from hierbench.leaderboard.board import Board
from hierbench.leaderboard.board_data import PUBLISHED
from hierbench.leaderboard.columns import Column
from hierbench.leaderboard.paired import BASELINE, SIGNIFICANT, Difference, difference_of_cells, differences, holm
from hierbench.leaderboard.paper_tables import PAPER_DDOF, PAPER_RUNS
from hierbench.leaderboard.statistics import Row, printed, ranked_rows, searched_rows

Verdict = Literal["yes", "no", "open", "tie", "-"]


class Claim(Closed):
    """A claim of a paper on a row.

    Attributes:
        says: the claim in words.
        row: METHOD:TYPE.
        metric: of it.
        is_: better than the reference; no worse than it by the margin; or the best of the paper's methods.
        reference: METHOD of the same type, or METHOD:TYPE.
        margin: the largest loss that counts as none, in the metric's unit.
    """

    says: str
    row: str
    metric: str
    is_: Literal["better", "no worse", "best"] = Field(alias="is")
    reference: str = BASELINE
    margin: float = Field(default=0.0, ge=0)


@dataclass(frozen=True)
class ClaimTest:
    """How a claim fares on a table: its verdict, and the difference behind it.

    Attributes:
        verdict: "-" where a row is missing.
        gap: the row minus what it is compared with; `p_holm` is that of the claim.
        against: the title and type of the row that it is compared with, "" for that of the claim.
    """

    verdict: Verdict
    gap: Difference | None = None
    against: str = ""


@dataclass(frozen=True)
class ClaimOverTables:
    """How a claim fares over several tables; gains are positive where the row is better.

    Attributes:
        verdict: by the Wilcoxon test, corrected over the claims.
        gain: mean over the units, and the half-width of its 95% t-interval, NaN for one.
        ci95: see `gain`.
        units: number of sets of images, or of tables.
        wins: units with a gain; of a claim of no loss with a loss below the margin.
        sign: two-sided p of the exact sign test, without zeros.
        wilcoxon: two-sided p of the signed-rank test, zeros split between both sides.
        p_holm: the latter, corrected.
    """

    verdict: Verdict
    gain: float
    ci95: float
    units: int
    wins: int
    sign: float
    wilcoxon: float
    p_holm: float


def read_claims() -> list[Claim]:
    """Return the claims of claims.toml."""
    text = (resources.files("hierbench.leaderboard") / "claims.toml").read_text(encoding="utf-8")
    return TypeAdapter(list[Claim]).validate_python(tomllib.loads(text)["claims"])


def claim_tests(claims: Sequence[Claim], board: Board, columns: Mapping[str, Column]) -> list[ClaimTest]:
    """Return how each claim fares on a table."""
    rows = named_rows(board)
    compared = [_compared(claim, board, rows, columns[claim.metric]) for claim in claims]
    ps = [
        None if gap is None else _p_of(claim, gap, columns[claim.metric])
        for claim, (gap, _) in zip(claims, compared, strict=True)
    ]
    corrected = iter(holm([p for p in ps if p is not None]))
    tests = list[ClaimTest]()
    for claim, (gap, best), p in zip(claims, compared, ps, strict=True):
        if gap is None or p is None:
            tests.append(ClaimTest("-"))
            continue
        gap = replace(gap, p_holm=next(corrected))
        verdict = _verdict(gain_of(gap, columns[claim.metric]) + claim.margin, gap.p_holm)
        if best and _is_tie(*best, columns[claim.metric]):
            verdict = "tie"
        tests.append(ClaimTest(verdict, gap, f"{best[1].title} {best[1].type}" if best else ""))
    return tests


def named_rows(board: Board) -> dict[str, Row]:
    """Return the ranked rows of a board by "METHOD:TYPE".

    Of several with one name it is the one whose values were not set by hand, as for an ablation; without one there is
    none of that name.
    """
    ranked = searched_rows(ranked_rows(board.rows))
    names = [f"{row.method}:{row.type}" for row in ranked]
    return {name: row for name, row in zip(names, ranked, strict=True) if names.count(name) == 1}


def gain_of(gap: Difference, column: Column) -> float:
    """Return a difference as a gain: positive where the row is better."""
    return gap.mean if column.higher else -gap.mean


def _compared(
    claim: Claim, board: Board, rows: Mapping[str, Row], column: Column
) -> tuple[Difference | None, tuple[Row, Row] | None]:
    """Return the difference behind a claim; of one of the best row also the method's best row and the runner-up."""
    if claim.row not in rows or rows[claim.row].metrics.get(claim.metric) is None:
        return None, None
    row = rows[claim.row]
    if claim.is_ != "best":
        name = claim.reference if ":" in claim.reference else f"{claim.reference}:{row.type}"
        return (_difference(row, rows[name], claim.metric, board), None) if name in rows else (None, None)
    sign = 1.0 if column.higher else -1.0
    means = {
        name: sign * mean
        for name, each in rows.items()
        if each.method in PAPER_METHODS and (mean := each.metrics[claim.metric].mean) is not None
    }
    others = [name for name in means if rows[name].method != row.method]
    if claim.row not in means or not others:
        return None, None
    ours = rows[max((name for name in means if rows[name].method == row.method), key=means.__getitem__)]
    runner_up = rows[max(others, key=means.__getitem__)]
    return _difference(ours, runner_up, claim.metric, board), (ours, runner_up)


def _difference(row: Row, reference: Row, metric: str, board: Board) -> Difference | None:
    if board.protocol == PUBLISHED:
        return difference_of_cells(row.metrics[metric], reference.metrics[metric], PAPER_RUNS, PAPER_DDOF)
    return differences(row, reference, [metric], board.seeds).get(metric)


def _p_of(claim: Claim, gap: Difference, column: Column) -> float:
    """Return the p of a claim before the correction: one-sided against the margin for one of no loss."""
    if claim.is_ != "no worse":
        return gap.p
    above = gain_of(gap, column) + claim.margin
    if gap.error == 0.0:
        return 0.5**gap.n if above else 1.0
    return float(stats.t.sf(abs(above) / gap.error, gap.freedom))


def _verdict(gain: float, p: float) -> Verdict:
    if not p < SIGNIFICANT:
        return "open"
    return "yes" if gain > 0 else "no"


def _is_tie(row: Row, other: Row, column: Column) -> bool:
    means = [each.metrics[column.name].mean for each in (row, other)]
    return None not in means and len({printed(mean, column.digits) for mean in means if mean is not None}) == 1


def claims_over_tables(
    claims: Sequence[Claim],
    boards: Sequence[Board],
    tests: Sequence[Sequence[ClaimTest]],
    columns: Mapping[str, Column],
    *,
    by_images: bool,
) -> list[ClaimOverTables | None]:
    """Return how each claim fares over tables of runs; None for one that no table has.

    Args:
        claims: of papers.
        boards: the tables; printed ones do not count.
        tests: [tables, claims] of `claim_tests`.
        columns: of all metrics of the claims.
        by_images: whether tables of the same images are averaged first, so that the unit is a set of images.
    """
    summaries = list[ClaimOverTables | None]()
    for place, claim in enumerate(claims):
        gains = dict[str, list[float]]()
        for board, table_tests in zip(boards, tests, strict=True):
            gap = table_tests[place].gap
            if gap is not None and board.protocol != PUBLISHED:
                unit = image_dataset(board.dataset) if by_images else board.dataset
                gains.setdefault(unit, []).append(gain_of(gap, columns[claim.metric]))
        values = np.array([np.mean(unit_gains) for unit_gains in gains.values()])
        summaries.append(_over(values, claim.margin) if len(values) else None)
    corrected = iter(holm([summary.wilcoxon for summary in summaries if summary is not None]))
    for place, summary in enumerate(summaries):
        if summary is not None:
            p = next(corrected)
            verdict = _verdict(summary.gain + claims[place].margin, p)
            summaries[place] = replace(summary, p_holm=p, verdict=verdict)
    return summaries


def _over(gains: np.ndarray[tuple[int, ...], np.dtype[np.float64]], margin: float) -> ClaimOverTables:
    above = gains + margin
    num = len(gains)
    decided = above[above != 0.0]
    sign = float(stats.binomtest(int((decided > 0).sum()), len(decided)).pvalue) if len(decided) else 1.0
    wilcoxon = float(stats.wilcoxon(above, zero_method="zsplit").pvalue) if len(decided) else 1.0
    error = float(gains.std(ddof=1)) / num**0.5 if num > 1 else float("nan")
    half_width = float(stats.t.ppf(0.975, num - 1)) * error if num > 1 else float("nan")
    return ClaimOverTables(
        "open", float(gains.mean()), half_width, num, int((above > 0).sum()), sign, wilcoxon, wilcoxon
    )


def random_effects(gaps: Sequence[Difference], column: Column) -> tuple[float, float]:
    """Return the mean gain over tables and its 95% half-width, with a variance between tables (DerSimonian & Laird).

    Controlled Clinical Trials 7, 1986. NaN for the half-width of one table.
    """
    gains = np.array([gain_of(gap, column) for gap in gaps])
    variances = np.maximum([gap.error**2 for gap in gaps], 1e-12)
    weights = 1.0 / variances
    fixed = float((weights * gains).sum() / weights.sum())
    spread = float((weights * (gains - fixed) ** 2).sum())
    scale = float(weights.sum() - (weights**2).sum() / weights.sum())
    between = max(0.0, (spread - (len(gains) - 1)) / scale) if len(gains) > 1 else 0.0
    shares = 1.0 / (variances + between)
    half_width = 1.959964 * float(shares.sum()) ** -0.5 if len(gains) > 1 else float("nan")
    return float((shares * gains).sum() / shares.sum()), half_width
