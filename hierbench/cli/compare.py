"""`hierbench compare`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hierbench.cli.options import MetricsOption, ProtocolOfRuns, TableFormat, write_result
from hierbench.config.names import complete_dataset
from hierbench.config.options import DataOption, RunsOption
from hierbench.utils.errors import UserError

if TYPE_CHECKING:
    from hierbench.config.sections import Protocol
    from hierbench.leaderboard.board import Board
    from hierbench.runs.store import Store


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
        list[str] | None, typer.Argument(help="METHOD[:TYPE] to compare with it, by default all; or the newer board.")
    ] = None,
    dataset: Annotated[
        str | None,
        typer.Option(
            "--dataset",
            help="See: hierbench data list; or the file of yours. Needed to compare rows.",
            autocompletion=complete_dataset,
        ),
    ] = None,
    runs: RunsOption = Path("runs"),
    data_dir: DataOption = Path("data"),
    protocol: ProtocolOfRuns = None,
    metrics: MetricsOption = None,
    ties: Annotated[
        str | None,
        typer.Option(
            metavar="METRIC", help="Compare all pairs of the rows (by default all rows) and print groups of ties."
        ),
    ] = None,
    format_: Annotated[TableFormat, typer.Option("--format", help="Format.")] = "markdown",
    output: Annotated[Path | None, typer.Option(help="Write to this file instead of standard output.")] = None,
) -> None:
    """Print how far rows of a table are from a reference, or one board from another, paired by seed."""
    from hierbench.leaderboard.formats import render

    names = [*([reference] if reference else []), *(rows or [])]
    if _are_boards(names):
        given = [name for name in ("runs", "metrics", "ties") if _is_given(context, name)]
        if given:
            option = f"--{given[0].replace('_', '-')}"
            raise UserError(f"{option} is for rows of one table, and {names[0]} and {names[1]} are two boards")
        from hierbench.experiments.checking import counted
        from hierbench.leaderboard.boards import compare_boards
        from hierbench.leaderboard.tables.boards import boards_table

        def verified(name: str, store: Store) -> tuple[Store, frozenset[str]]:
            found = counted(name, store, data_dir)
            return found.store, found.rejected

        found = compare_boards(Path(names[0]), Path(names[1]), dataset, protocol, verified)
        return write_result(render(boards_table(found), format_), output)
    if dataset is None:
        _refuse_missing(names)
        raise UserError("Missing option '--dataset'; without it, compare takes two boards: folders of records.")
    if ties is not None:
        if metrics is not None:
            raise UserError("--ties names its metric; --metrics is for differences from a reference")
        from hierbench.leaderboard.columns import column_of
        from hierbench.leaderboard.scored import refuse_scored
        from hierbench.leaderboard.tables.ties import ties_table
        from hierbench.leaderboard.ties import tied_rows

        column = column_of(ties)
        board, store = _board(dataset, runs, data_dir, protocol, f"+{column.name}")
        _refuse_missing(names, board)
        refuse_scored(names, board.rows, store, board.dataset)
        return write_result(render(ties_table(board, tied_rows(board, column, names)), format_), output)
    if reference is None:
        raise UserError("Missing argument 'REFERENCE', as METHOD[:TYPE]; or group all rows with --ties METRIC.")
    from hierbench.leaderboard.paired import compare_rows
    from hierbench.leaderboard.tables.differences import differences_table

    board, store = _board(dataset, runs, data_dir, protocol, metrics)
    _refuse_missing(names, board)
    write_result(render(differences_table(board, compare_rows(board, store, reference, rows or ())), format_), output)


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


def _is_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name not in ("DEFAULT", "DEFAULT_MAP")


def _board(
    dataset: str, runs: Path, data_dir: Path, protocol: Protocol | None, metrics: str | None
) -> tuple[Board, Store]:
    """Return the table with the columns of --metrics, and the verified runs behind it."""
    from hierbench.experiments.checking import open_board
    from hierbench.leaderboard.columns import asked_columns

    found = open_board(dataset, runs, data_dir, protocol, asked_columns(metrics))
    return found.board.of_runs, found.store
