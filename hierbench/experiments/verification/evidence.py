"""What the rows of a table rest on: the verdicts of their runs."""

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace

from hierbench.experiments.verification.findings import Report
from hierbench.leaderboard.board import Board, planned_seeds, remark_on_seeds
from hierbench.leaderboard.ranking import rank
from hierbench.leaderboard.statistics import UNRANKED, Row

# From the strongest to the weakest, and how a legend says it of a number of runs.
EVIDENCE = {"reproduced": "trained again", "recomputed": "recomputed from predictions", "claimed": "claimed"}


def with_verdicts(board: Board, report: Report) -> Board:
    """Return a board that says what each row rests on; claimed rows, and those rejected as such, are not ranked."""
    verdicts = {run.id: run.verdict for run in report.runs}
    rejected = {run_id for row in report.rows if row.rejected for run_id in row.runs}
    rows = [replace(row, verdict=_verdict_of(row, verdicts, rejected)) for row in board.rows]
    board = replace(board, rows=rows, evidence=_evidence(rows, verdicts))
    return ranked_anew(board) if any(row.verdict in UNRANKED for row in rows) else board


def ranked_anew(board: Board) -> Board:
    """Return a board with its rows ranked by their verdicts, and with the seeds that these leave."""
    planned = planned_seeds(board.dataset, board.protocol)
    seeds = rank(board.rows, planned, board.columns)
    remark = board.remark
    if planned is not None and len(seeds) < planned and (said := remark_on_seeds(planned)) not in remark.split("; "):
        remark = "; ".join(filter(None, [remark, said]))
    return replace(board, seeds=seeds, remark=remark)


def _verdict_of(row: Row, verdicts: Mapping[str, str], rejected: Set[str]) -> str:
    if not rejected.isdisjoint(row.runs):
        return "rejected"
    there = {verdicts.get(run_id, "") for run_id in row.runs}
    return next((verdict for verdict in reversed(EVIDENCE) if verdict in there), "")


def _evidence(rows: Sequence[Row], verdicts: Mapping[str, str]) -> str:
    counts = Counter(verdicts.get(run_id, "") for row in rows for run_id in row.runs)
    said = [f"{counts[verdict]} {how}" for verdict, how in EVIDENCE.items() if counts[verdict]]
    if counts["rejected"]:
        said.append(f"{counts['rejected']} rejected and not counted")
    first, _, rest = (said[0] if said else "").partition(" ")
    return ", ".join([f"{first} run{'' if first == '1' else 's'} {rest}", *said[1:]]) if said else ""
