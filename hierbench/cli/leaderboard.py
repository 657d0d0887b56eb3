"""`hierbench leaderboard`."""

from typing import Annotated, Literal

from hierbench.cli.command import command
from hierbench.cli.shared_options import MetricsOption
from hierbench.config.options import DatasetOption, RunSelection
from hierbench.leaderboard.table import Table
from hierbench.utils.errors import UserError


@command("leaderboard --dataset shapes --format latex --output table.tex", table="markdown")
def leaderboard(
    dataset: DatasetOption,
    selection: RunSelection,
    numbers: Annotated[Literal["runs", "paper", "both"], "Our runs, the published table, or both."] = "runs",
    metrics: MetricsOption = None,
    intervals: Annotated[
        Literal["seeds", "images"], "Half-widths over seeds, or over seeds and test images."
    ] = "seeds",
) -> Table | None:
    """Print the table of a dataset: of runs, of the paper, or both.

    Runs are shown as recorded: damaged runs are not counted, and listed on standard error. The exit code is 0 if
    there is a table; hierbench verify computes the metrics again, and has one for findings.
    """
    from hierbench.leaderboard.columns import requested_columns

    requested = requested_columns(metrics)
    from hierbench.leaderboard.open_board import note, open_board

    if numbers != "both":
        board = open_board(dataset, selection, requested, numbers)
        if intervals == "images":
            from hierbench.leaderboard.image_intervals import over_images  # PyTorch

            board = over_images(board, selection.data_dir)
        return board.table
    from hierbench.leaderboard.board import Board
    from hierbench.leaderboard.ledger import build_ledger, ledger_table
    from hierbench.leaderboard.request_choice import NoRunsError

    if metrics is not None:
        raise UserError("--numbers both has the paper's metrics: other metrics are only for runs")
    published = Board.paper(dataset)
    try:
        board = open_board(dataset, selection, with_unranked=False)
    except NoRunsError as error:
        note([str(error)])
        return ledger_table(
            build_ledger(Board(dataset, selection.protocol or "paper", published.distance, ()), published)
        )
    return ledger_table(build_ledger(board, published))
