"""A leaderboard of runs that leave the machine or come to it: every number in it is computed again here."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from hierbench.config.options import RunSelection
from hierbench.config.recipe import dataset_name
from hierbench.leaderboard.board import Board
from hierbench.leaderboard.board_answers import BoardAnswers
from hierbench.leaderboard.columns import PAPER_COLUMNS, Column, further_names
from hierbench.leaderboard.extra_columns import with_columns
from hierbench.leaderboard.image_intervals import with_examples
from hierbench.leaderboard.open_board import is_published
from hierbench.runs.findings import FolderReport
from hierbench.runs.records import Records
from hierbench.sharing.verification.inspection import inspect
from hierbench.sharing.verification.published_answers import published_answers, tree_finder
from hierbench.sharing.verification.published_tables import check_tables
from hierbench.utils.errors import UserError


@dataclass(frozen=True)
class CheckedBoard:
    """A board, the findings of its verification, and the answers that its runs keep, made when they are asked for."""

    board: Board
    report: FolderReport
    answers: Callable[[], BoardAnswers | None]


def checked_board(
    dataset: str, selection: RunSelection, columns: Sequence[Column] = PAPER_COLUMNS, compared: Collection[str] = ()
) -> CheckedBoard:
    """Return the table of a dataset without rejected runs, and the findings of its verification.

    Rejected runs count as planned and not as finished. Rows whose seeds are rejected, as one of them is missing, are
    shown and not ranked. Each row has the weakest verdict of its finished runs.

    Args:
        dataset: its name, or the file of a user's dataset.
        selection: a runs folder, or the records of a published table, which is then compared with them; and prepared
            data, which gives trees and targets where it is that of the runs.
        columns: of the table; values of further ones are compared where they are kept, and else computed.
        compared: metrics that are compared where they are kept, besides those of the columns.

    Raises:
        UserError: as `Board.of`.
    """
    root = selection.runs
    data_dir = selection.data_dir
    records, report = checked_records(dataset, root, data_dir, [*further_names(columns), *compared])
    name = dataset_name(dataset)
    rejected = report.rejected_ids
    try:
        board = Board.of(dataset, records, protocol=selection.protocol, request=selection.request)
    except UserError as error:
        if not rejected:
            raise
        number = f"{len(rejected)} {'is' if len(rejected) == 1 else 'are'} rejected"
        raise type(error)(f"{error}; {number}: hierbench verify {root} says why") from None
    published = name if is_published(root.absolute().parent, root.absolute().name) else None
    file = dataset if dataset != name else ""  # of a user's dataset, with its recipe
    answers = cache(partial(published_answers, board, data_dir))
    report.tables = check_tables(records, published, data_dir, name, file, answers)
    board = with_examples(with_columns(board, columns, data_dir), tree_finder(records, data_dir))
    return CheckedBoard(board, report, answers)


def checked_records(
    dataset: str, root: Path, data_dir: Path, metrics: Collection[str] = ()
) -> tuple[Records, FolderReport]:
    """Return the runs of a dataset as they were checked, and the findings on them; arguments as above."""
    inspection = inspect(root, data_dir, dataset_name(dataset), metrics=metrics)
    return inspection.records, FolderReport(root, [run.record for run in inspection.runs], inspection.rows)
