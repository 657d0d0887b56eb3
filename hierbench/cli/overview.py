"""`hierbench overview`."""

from pathlib import Path
from typing import Annotated

import typer

from hierbench.cli.command import command
from hierbench.leaderboard.table import Table


@command("overview boards --paper", table="markdown", view=True)
def overview(
    folders: Annotated[list[Path] | None, typer.Argument(help="Folder of published tables, or a runs folder.")] = None,
    *,
    metric: Annotated[str, "Metric of differences, ranks and agreement; claims have their own."] = "mistake_severity",
    paper: Annotated[bool, typer.Option("--paper", help="Add the tables that the paper printed.")] = False,
    picture: Annotated[Path | None, "Draw the differences into this file too: SVG, PDF or PNG."] = None,
) -> Table:
    """Compare tables with each other: differences, ranks, claims and agreement."""
    from hierbench.leaderboard.claims import read_claims
    from hierbench.leaderboard.columns import PAPER_BY_NAME
    from hierbench.leaderboard.open_board import open_boards
    from hierbench.leaderboard.overview_table import TableSummary, overview_table
    from hierbench.utils.errors import UserError, unknown_name

    if metric not in PAPER_BY_NAME:
        raise unknown_name("metric", metric, PAPER_BY_NAME)
    boards = open_boards(folders or ([] if paper else [Path("runs")]), paper=paper)
    if not boards:
        raise UserError("no table to look at")
    if picture is not None:
        from hierbench.figures.plots.overview_plot import draw
        from hierbench.figures.plots.style import check_output, house_style, write_figure

        check_output(picture, "--picture")
        with house_style():
            write_figure(draw([TableSummary.of(board) for board in boards], PAPER_BY_NAME[metric]), picture)
    return overview_table(boards, metric, read_claims())
