"""`hierbench overview`."""

from pathlib import Path
from typing import Annotated

import typer

from hierbench.cli.command import command
from hierbench.leaderboard.table import Table


@command("overview boards", table="markdown")
def overview(
    folders: Annotated[list[Path] | None, typer.Argument(help="Folder of published tables, or a runs folder.")] = None,
) -> Table:
    """Compare tables with each other: the verdict of the protocol's, differences and ranks."""
    from hierbench.leaderboard.open_board import open_boards
    from hierbench.leaderboard.overview_table import overview_table
    from hierbench.utils.errors import UserError

    boards = open_boards(folders or [Path("runs")])
    if not boards:
        raise UserError("no table to look at")
    return overview_table(boards)
