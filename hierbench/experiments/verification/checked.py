"""A leaderboard of what verification leaves: without rejected runs, and with the evidence behind each row."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from hierbench.config.recipe import dataset_name
from hierbench.config.sections import Protocol
from hierbench.experiments.verification.evidence import with_verdicts
from hierbench.experiments.verification.findings import NOT_AGAIN, NOT_FINISHED, Finding, Report
from hierbench.experiments.verification.inspection import inspect
from hierbench.experiments.verification.tables import check_tables
from hierbench.experiments.verification.verify import is_published
from hierbench.leaderboard.board import Board, board_with_scored
from hierbench.runs.store import Run, Store

LIMIT = 20  # lines that a table is preceded by


@dataclass(frozen=True)
class Verified(Store):
    """The runs of a store without those that are not what their folder is named after: no table counts them."""

    without: frozenset[str] = frozenset()

    def runs(self) -> Iterator[Run]:
        """Yield every other run, oldest first."""
        return (run for run in super().runs() if run.folder.name not in self.without)


def checked_board(
    dataset: str, store: Store, data_dir: Path, protocol: Protocol | None = None, metrics: Collection[str] = ()
) -> tuple[Board, Report]:
    """Return the table of a dataset without the runs that verification rejects, and all that it found.

    Rejected runs count as planned and not as finished. Rows whose seeds are rejected, as one of them is missing, are
    shown and not ranked. Each row has the weakest verdict of its finished runs.

    Args:
        dataset: its name, or the file of a user's dataset.
        store: of a runs folder, or of the records of a published table, which is then compared with them.
        data_dir: prepared data, which gives trees and targets where it is that of the runs.
        protocol: only runs under it; None takes that of the newest.
        metrics: names of the metrics beyond the paper's that will be shown, compared where they are kept.

    Raises:
        UserError: as `board_from_runs`.
    """
    name = dataset_name(dataset)
    counted, report = checked_runs(name, store, data_dir, metrics)
    board = board_with_scored(dataset, counted, protocol, report.rejected_ids)
    published = name if is_published(store.root.parent, store.root.absolute().name) else None
    report.tables = check_tables(report, published, store, data_dir, of=name)
    return with_verdicts(board, report), report


def checked_runs(dataset: str, store: Store, data_dir: Path, metrics: Collection[str] = ()) -> tuple[Store, Report]:
    """Return what was found of a dataset's runs, and a store without those that their folder is not named after."""
    records, rows = inspect(store, data_dir, dataset, metrics=metrics)
    impostors = [record.run.folder.name for record in records if record.spec is None and record.scored is None]
    counted = Verified(store.root, store.apart, frozenset(impostors))
    return counted, Report(store.root, [record.finding for record in records], rows)


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
    for kind, findings, what in (("row", report.rows, " and not ranked"), ("table", report.tables, "")):
        lines += [f"{kind} {one.label} is rejected{what}: {'; '.join(one.reasons)}" for one in findings if one.rejected]
    for kind, findings in (("row", report.rows), ("run", report.runs), ("table", report.tables)):
        lines += _grouped(kind, findings)
    return lines


def _grouped(kind: str, findings: Sequence[Finding]) -> list[str]:
    """Return a line per note, with the names of all that have it, but for what the table shows itself."""
    of: dict[str, list[str]] = {}
    for finding in findings:
        for note in finding.notes:
            hidden = finding.verdict == "unfinished" or note.endswith(NOT_FINISHED) or note.startswith(NOT_AGAIN)
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
