"""`hierbench compare`."""

from typing import Annotated

import typer

from hierbench.cli.command import command
from hierbench.cli.shared_options import MetricsOption
from hierbench.config.options import DatasetOption, RunSelection
from hierbench.leaderboard.table import Table


@command("compare --dataset shapes ce", table="markdown", protocol=None)
def compare(
    reference: Annotated[str, typer.Argument(help="METHOD[:TYPE]; without a type, the row of each row's own type.")],
    rows: Annotated[
        list[str] | None,
        typer.Argument(metavar="ROW...", help="METHOD[:TYPE] to compare with it, by default all."),
    ] = None,
    *,
    dataset: DatasetOption,
    selection: RunSelection,
    metrics: MetricsOption = None,
) -> Table:
    """Print the differences of rows from a reference, paired by seed."""
    from hierbench.leaderboard.columns import requested_columns
    from hierbench.leaderboard.open_board import open_board

    board = open_board(dataset, selection, requested_columns(metrics), with_unranked=False)
    return board.compare(reference, *(rows or ())).table
