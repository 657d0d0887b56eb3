"""A leaderboard of what verification leaves: without rejected runs, and with the evidence behind each row."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from hierbench.config.recipe import dataset_name
from hierbench.config.sections import Protocol
from hierbench.config.spec import Spec
from hierbench.experiments.verification.findings import (
    NOT_FINISHED,
    TARGETS_ALONE,
    TARGETS_KNOWN,
    Finding,
    Report,
)
from hierbench.experiments.verification.inspection import inspect
from hierbench.experiments.verification.tables import check_tables
from hierbench.experiments.verification.verify import is_published
from hierbench.leaderboard.board import Board, NoRunsError
from hierbench.leaderboard.columns import PAPER, Column, further
from hierbench.leaderboard.measured import with_columns
from hierbench.leaderboard.rows import Verified
from hierbench.runs.known import KnownRun
from hierbench.runs.store import Run, Store
from hierbench.utils.errors import UserError

HIDDEN = (TARGETS_ALONE, TARGETS_KNOWN)
LIMIT = 20  # lines that a table is preceded by


@dataclass(frozen=True)
class Opened:
    """A board, the runs behind it as they count, and all that verification found."""

    board: Board
    store: Verified
    report: Report


def checked_board(
    dataset: str,
    store: Store,
    data_dir: Path,
    protocol: Protocol | None = None,
    columns: Sequence[Column] = PAPER,
    compared: Collection[str] = (),
) -> Opened:
    """Return the table of a dataset without the runs that verification rejects, and all that it found.

    Rejected runs count as planned and not as finished. Rows whose seeds are rejected, as one of them is missing, are
    shown and not ranked. Each row has the weakest verdict of its finished runs.

    Args:
        dataset: its name, or the file of a user's dataset.
        store: of a runs folder, or of the records of a published table, which is then compared with them.
        data_dir: prepared data, which gives trees and targets where it is that of the runs.
        protocol: only runs under it; None takes that of the newest.
        columns: of the table; values of further ones are compared where they are kept, and else computed.
        compared: metrics that are compared where they are kept, besides those of the columns.

    Raises:
        UserError: as `Board.of`.
    """
    runs, report = checked_runs(dataset, store, data_dir, [*further(columns), *compared])
    return board_of(dataset, runs, report, data_dir, protocol, columns)


def board_of(
    dataset: str,
    runs: Verified,
    report: Report,
    data_dir: Path,
    protocol: Protocol | None = None,
    columns: Sequence[Column] = PAPER,
    *,
    scored: bool = True,
) -> Opened:
    """Return the table of runs that were checked, perhaps without scored rows; otherwise as `checked_board`."""
    name, rejected = dataset_name(dataset), report.rejected_ids
    try:
        board = Board.of(dataset, runs, protocol=protocol, scored=scored)
    except NoRunsError as error:
        if not rejected:
            raise
        number = f"{len(rejected)} {'is' if len(rejected) == 1 else 'are'} rejected"
        raise NoRunsError(f"{error}; {number}: hierbench verify {runs.root} says why") from None
    published = name if is_published(runs.root.absolute().parent, runs.root.absolute().name) else None
    file = dataset if dataset != name else ""  # of a user's dataset, with its recipe
    report.tables = check_tables(report, published, runs, data_dir, of=name, file=file)
    return Opened(board if tuple(columns) == PAPER else with_columns(board, columns, runs, data_dir), runs, report)


def checked_runs(dataset: str, store: Store, data_dir: Path, metrics: Collection[str] = ()) -> tuple[Verified, Report]:
    """Return the runs of a store that count, and what was found of those of a dataset; arguments as above."""
    runs, lost = store.listing()
    records, rows = inspect(store, data_dir, dataset_name(dataset), metrics=metrics, runs=runs)
    verified, impostors = dict[str, Run](), set()
    for record in records:
        name = record.run.folder.name
        if record.spec is None and record.scored is None and _has_a_spec(record.run):
            impostors.add(name)  # it would be a row; without a spec that can be read, a run is named as damaged
        elif record.spec is not None and record.metrics and record.is_intact:
            verified[name] = KnownRun(
                record.run.folder,
                known=record.spec,
                row=record.row,
                result=record.metrics,
                environment=record.environment,
            )
    report = Report(store.root, [record.finding for record in records], rows)
    counted = tuple(
        verified.get(name, run) for name, run in ((run.folder.name, run) for run in runs) if name not in impostors
    )
    return Verified(store.root, store.apart, verified, (counted, lost), report.evidence), report


def _has_a_spec(run: Run) -> bool:
    try:
        Spec.model_validate(run.spec())
    except (ValidationError, UserError):
        return False
    return True


def notes_of(report: Report, said: Sequence[str] = ()) -> list[str]:
    """Return a line for each finding that a reader of the table must know, the rejections first.

    Args:
        report: of the table's runs.
        said: lines of `damaged_runs`, which have named some of the runs.
    """
    named = {line.split()[1] for line in said}
    lines = [
        f"run {run.id[:12]} ({run.label}) is rejected and not counted: {'; '.join(run.reasons)}"
        for run in report.runs
        if run.rejected and run.id[:12] not in named
    ]
    tables = report.tables if not said else ()  # the table on disk is of the runs before the damage
    for kind, findings, what in (("row", report.rows, " and not ranked"), ("table", tables, "")):
        lines += [f"{kind} {one.label} is rejected{what}: {one.why()}" for one in findings if one.rejected]
    for kind, findings in (("row", report.rows), ("run", report.runs), ("table", report.tables)):
        lines += _grouped(kind, findings)
    if any(TARGETS_ALONE in run.notes and not run.rejected for run in report.runs):
        lines.append(TARGETS_ALONE)
    return lines


def _grouped(kind: str, findings: Sequence[Finding]) -> list[str]:
    """Return a line per note, with the names of all that have it, but for what the table shows itself."""
    of: dict[str, list[str]] = {}
    for finding in findings:
        for note in finding.notes:
            hidden = finding.verdict == "unfinished" or note.endswith(NOT_FINISHED) or note.startswith(HIDDEN)
            if not hidden and not (finding.rejected and finding.id):
                of.setdefault(note, []).append(finding.label)
    return [
        f"{kind}{'s' if len(names) > 1 else ''} {', '.join(names[:3])}"
        f"{f' and {len(names) - 3} more' if len(names) > 3 else ''}: {note}"
        for note, names in of.items()
    ]


def with_limit(lines: Sequence[str], store: Store, limit: int = LIMIT) -> list[str]:
    """Return the first lines, and one that says how many more there are."""
    left = len(lines) - limit
    return [*lines[:limit], f"and {left} more; hierbench verify {store.root} shows all"] if left > 1 else list(lines)
