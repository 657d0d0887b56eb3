"""`hierbench compare`."""

from typing import Annotated

import typer

from hierbench.cli.command import command
from hierbench.cli.options import MetricsOption
from hierbench.config.options import DatasetOption, Place
from hierbench.leaderboard.table import Table
from hierbench.utils.errors import UserError


@command("compare --dataset shapes ce", table="markdown")
def compare(
    reference: Annotated[
        str | None, typer.Argument(help="METHOD[:TYPE]; without a type, the row of each row's own type.")
    ] = None,
    rows: Annotated[
        list[str] | None,
        typer.Argument(metavar="ROW...", help="METHOD[:TYPE] to compare with it, by default all."),
    ] = None,
    *,
    dataset: DatasetOption,
    place: Place,
    metrics: MetricsOption = None,
    ties: Annotated[
        str | None,
        typer.Option(metavar="METRIC", help="Compare all pairs of rows, by default all, and group ties."),
    ] = None,
) -> Table:
    """Print how far rows of a table are from a reference, paired by seed."""
    names = [*([reference] if reference else []), *(rows or [])]
    if ties is not None and metrics is not None:
        raise UserError("--ties names its metric; --metrics is for differences from a reference")
    if ties is None and reference is None:
        raise UserError("Missing argument 'REFERENCE', as METHOD[:TYPE]; or group all rows with --ties METRIC.")
    from hierbench.leaderboard.columns import asked_columns, column_of
    from hierbench.leaderboard.opening import open_board

    column = None if ties is None else column_of(ties)
    columns = asked_columns(metrics if column is None else f"+{column.name}")
    board = open_board(dataset, place, columns, apart=False)
    if column is not None:
        from hierbench.leaderboard.scored import refuse_scored
        from hierbench.leaderboard.tables.ties import ties_table
        from hierbench.leaderboard.ties import tied_rows

        refuse_scored(names, board)
        return ties_table(board, tied_rows(board, column, names))
    from hierbench.leaderboard.paired import compare_rows
    from hierbench.leaderboard.tables.differences import differences_table

    return differences_table(board, compare_rows(board, names[0], rows or ()))
