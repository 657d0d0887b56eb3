"""`hierbench compare`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hierbench.cli.command import command, is_given
from hierbench.cli.options import MetricsOption, dataset_option
from hierbench.config.options import Place
from hierbench.leaderboard.table import Table
from hierbench.utils.errors import UserError

if TYPE_CHECKING:
    from hierbench.leaderboard.board import Board


@command("compare --dataset shapes ce", table="markdown")
def compare(
    context: typer.Context,
    reference: Annotated[
        str | None,
        typer.Argument(
            help="METHOD[:TYPE]; without a type, the row of each row's own type. Or the older of two boards: a runs "
            "folder, a published table or a submission."
        ),
    ] = None,
    rows: Annotated[
        list[str] | None,
        typer.Argument(metavar="ROW...", help="METHOD[:TYPE] to compare with it, by default all; or the newer board."),
    ] = None,
    dataset: Annotated[
        str | None, dataset_option("See: hierbench data list; or the file of yours. Needed to compare rows.")
    ] = None,
    *,
    place: Place,
    metrics: MetricsOption = None,
    ties: Annotated[
        str | None,
        typer.Option(metavar="METRIC", help="Compare all pairs of rows, by default all, and group ties."),
    ] = None,
) -> Table:
    """Print how far rows of a table are from a reference, or one board from another, paired by seed."""
    names = [*([reference] if reference else []), *(rows or [])]
    if _are_boards(names):
        given = [name for name in ("runs", "request", "metrics", "ties") if is_given(context, name)]
        if given:
            option = f"--{given[0].replace('_', '-')}"
            raise UserError(f"{option} is for rows of one table, and {names[0]} and {names[1]} are two boards")
        from hierbench.leaderboard.boards import differences_of
        from hierbench.leaderboard.opening import open_folder
        from hierbench.leaderboard.tables.boards import boards_table

        old, new = ((open_folder(path, place, dataset), path) for path in map(Path, names))
        return boards_table(differences_of(old, new))
    if dataset is None:
        _refuse_missing(names)
        raise UserError("Missing option '--dataset'; without it, compare takes two boards: folders of records.")
    if ties is not None and metrics is not None:
        raise UserError("--ties names its metric; --metrics is for differences from a reference")
    if ties is None and reference is None:
        raise UserError("Missing argument 'REFERENCE', as METHOD[:TYPE]; or group all rows with --ties METRIC.")
    from hierbench.leaderboard.columns import asked_columns, column_of
    from hierbench.leaderboard.opening import open_board

    column = None if ties is None else column_of(ties)
    columns = asked_columns(metrics if column is None else f"+{column.name}")
    board = open_board(dataset, place, columns, apart=False)
    _refuse_missing(names, board)
    if column is not None:
        from hierbench.leaderboard.scored import refuse_scored
        from hierbench.leaderboard.tables.ties import ties_table
        from hierbench.leaderboard.ties import tied_rows

        refuse_scored(names, board)
        return ties_table(board, tied_rows(board, column, names))
    from hierbench.leaderboard.paired import compare_rows
    from hierbench.leaderboard.tables.differences import differences_table

    return differences_table(board, compare_rows(board, names[0], rows or ()))


def _are_boards(names: Sequence[str]) -> bool:
    """Whether the arguments are two boards: both look like paths, or both are on disk."""
    looks = [os.sep in name or name.endswith(".json") for name in names]
    return len(names) == 2 and (any(looks) or all(Path(name).exists() for name in names))


def _refuse_missing(names: Sequence[str], board: Board | None = None) -> None:
    """Raise a UserError for two names of which one is a folder on disk, and no row, and the other is nothing."""
    rows = set() if board is None else {row.method for row in board.rows}
    known = [name.partition(":")[0] in rows for name in names]
    there = [Path(name).is_dir() for name in names]
    if len(names) == 2 and not any(known) and sum(there) == 1:
        missing, folder = names[there.index(False)], names[there.index(True)]
        what = "is not a folder of records" if Path(missing).exists() else "does not exist"
        raise UserError(f"the folder {missing} {what}; {folder} is a folder, and compare takes two boards or rows")
