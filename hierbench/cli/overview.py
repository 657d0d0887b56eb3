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
    metric: Annotated[str, "Metric of differences and ranks; claims have their own."] = "mistake_severity",
    paper: Annotated[bool, typer.Option("--paper", help="Add the tables that the paper printed.")] = False,
    picture: Annotated[Path | None, "Draw the verdict into this file too: SVG, PDF or PNG."] = None,
) -> Table:
    """Compare tables with each other: the verdict of the protocol's, differences and ranks."""
    from hierbench.leaderboard.columns import PAPER_BY_NAME
    from hierbench.leaderboard.open_board import open_boards
    from hierbench.leaderboard.overview_table import overview_table
    from hierbench.utils.errors import UserError, unknown_name

    if metric not in PAPER_BY_NAME:
        raise unknown_name("metric", metric, PAPER_BY_NAME)
    boards = open_boards(folders or ([] if paper else [Path("runs")]), paper=paper)
    if not boards:
        raise UserError("no table to look at")
    if picture is not None:
        from hierbench.figures.plots.style import check_output, house_style, write_figure
        from hierbench.figures.plots.verdict_plot import draw
        from hierbench.leaderboard.verdict import VerdictRows

        check_output(picture, "--picture")
        evidence = VerdictRows.of(boards)
        if not any(evidence.rows.values()):
            raise UserError("--picture draws the verdict, and none of these tables is of its protocol")
        with house_style():
            write_figure(draw(evidence), picture)
    return overview_table(boards, metric)
