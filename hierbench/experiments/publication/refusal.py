"""What is not published: runs and rows that verification rejects, rows that are not finished, and what gets worse."""

from collections.abc import Sequence

from hierbench.experiments.checking import with_bases
from hierbench.experiments.verification.checked import notes_of
from hierbench.experiments.verification.findings import Finding, Report
from hierbench.leaderboard.board import Board
from hierbench.leaderboard.statistics import Row
from hierbench.runs.store import Store
from hierbench.utils.errors import UserError
from hierbench.utils.text import one_line

SHOWN = 3  # findings that an error names
LONGEST = 300  # characters of what a record says


def refuse_rejected(board: Board, report: Report, store: Store) -> list[str]:
    """Raise a UserError that names what is rejected of the runs and rows of a table, or is not finished.

    Returns:
        a line for all else that a reader of the table must know, such as rejected runs that it does not have.
    """
    own = set(with_bases((run_id for row in board.rows for run_id in row.runs), store))
    _refuse("run", [run for run in report.runs if run.rejected and run.id in own])
    _refuse("row", [row for row in report.rows if row.rejected and not own.isdisjoint(row.runs)])
    if unfinished := [row for row in board.rows if row.n < row.planned]:
        raise _unfinished(unfinished[0], store)
    return notes_of(report)


def _unfinished(row: Row, store: Store) -> UserError:
    """Return the error for a row with unfinished runs; without them and its later seeds, it is one without gaps."""
    first = next((place for place, run_id in enumerate(row.runs) if not store.run(run_id).done), 0)
    odd = [f"{store.root / run_id[:12]}*" for run_id in row.runs[first:]]
    more = f" and {len(odd) - SHOWN} more" if len(odd) > SHOWN else ""
    way = f"run it again, or remove {', '.join(odd[:SHOWN])}{more}"
    return UserError(f"not all runs of {row.title} are finished; a published table is complete: {way}")


def _refuse(what: str, rejected: Sequence[Finding]) -> None:
    """Raise a UserError that names the first few and why, if there is one."""
    if rejected:
        said = []
        for finding in rejected[:SHOWN]:
            name = one_line(f"{finding.id[:12]} ({finding.label})" if finding.id else finding.label, LONGEST)
            said.append(f"{what} {name} is rejected: {one_line(', '.join(finding.reasons), LONGEST)}")
        more = [f"{len(rejected) - SHOWN} more {what}s are rejected"] if len(rejected) > SHOWN else []
        raise UserError(f"nothing is published: {'; '.join([*said, *more])}")
