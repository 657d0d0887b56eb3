"""The table of a folder's runs after verification, and the error for what verification rejects."""

from collections.abc import Sequence
from pathlib import Path

from hierbench.config.sections import Protocol
from hierbench.experiments.publication.records import with_bases
from hierbench.experiments.verification.findings import Finding, Report
from hierbench.experiments.verification.verify import verify
from hierbench.leaderboard.board import Board, board_with_scored
from hierbench.runs.store import Store
from hierbench.utils.errors import UserError
from hierbench.utils.text import one_line

LONGEST = 300  # characters of what a record says


def checked_board(dataset: str, store: Store, data_dir: Path, protocol: Protocol | None = None) -> tuple[Board, Report]:
    """Return the table of a folder's runs without those that verification rejects, and all findings."""
    board = board_with_scored(dataset, store, protocol)  # says that there are no runs
    (report,) = verify([store.root], data_dir)
    rejected = {run.id for run in report.runs if run.rejected}
    return (board_with_scored(dataset, store, protocol, rejected) if rejected else board), report


def refuse_rejected(board: Board, report: Report, store: Store) -> list[str]:
    """Raise a UserError that names what is rejected of the runs and rows behind a table; nothing of it is published.

    Returns:
        a line for each rejected run of the folder that the table is not of.
    """
    own = set(with_bases((run_id for row in board.rows for run_id in row.runs), store))
    rows = {f"{board.dataset} {row.method} {row.type}" for row in board.rows}
    rejected = [run for run in report.runs if run.rejected]
    _refuse("run", [run for run in rejected if run.id in own])
    _refuse("row", [row for row in report.rows if row.rejected and row.label in rows])
    return [f"not published: run {_named(run)} is rejected: {_why(run)}" for run in rejected if run.id not in own]


def _refuse(what: str, rejected: Sequence[Finding]) -> None:
    if rejected:
        first, *others = rejected
        more = f" (and {len(others)} more {what}{'s' if len(others) > 1 else ''})" if others else ""
        raise UserError(f"{what} {_named(first)} is rejected and not published: {_why(first)}{more}")


def _named(finding: Finding) -> str:
    known = finding.id and finding.label != finding.id[:12]
    return one_line(f"{finding.label} ({finding.id[:12]})" if known else finding.label, LONGEST)


def _why(finding: Finding) -> str:
    return one_line("; ".join(finding.reasons), LONGEST)
