"""`hierbench overview`."""

from pathlib import Path
from typing import Annotated

import typer

from hierbench.cli.command import command
from hierbench.leaderboard.table import Table


@command("overview boards", table="markdown")
def overview(
    folders: Annotated[list[Path] | None, typer.Argument(help="Folder of published tables, or a runs folder.")] = None,
    *,
    metric: Annotated[str, "Metric of differences and ranks; claims have their own."] = "mistake_severity",
) -> Table:
    """Compare tables with each other: the verdict of the protocol's, differences and ranks."""
    from hierbench.leaderboard.columns import PAPER_BY_NAME
    from hierbench.leaderboard.open_board import open_boards
    from hierbench.leaderboard.overview_table import overview_table
    from hierbench.utils.errors import UserError, unknown_name

    if metric not in PAPER_BY_NAME:
        raise unknown_name("metric", metric, PAPER_BY_NAME)
    boards = open_boards(folders or [Path("runs")])
    if not boards:
        raise UserError("no table to look at")
    return overview_table(boards, metric)
