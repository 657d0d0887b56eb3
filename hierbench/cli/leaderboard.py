"""`hierbench leaderboard`."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from hierbench.cli.options import MetricsOption, ProtocolOfRuns, TableFormat, print_said, write_result
from hierbench.config.options import DataOption, DatasetOption, RunsOption
from hierbench.utils.errors import UserError


def leaderboard(
    dataset: DatasetOption,
    runs: RunsOption = Path("runs"),
    data_dir: DataOption = Path("data"),
    source: Annotated[
        Literal["runs", "paper", "both"], typer.Option(help="Our runs, the published table, or both side by side.")
    ] = "runs",
    protocol: ProtocolOfRuns = None,
    metrics: MetricsOption = None,
    format_: Annotated[TableFormat, typer.Option("--format", help="Format of the table.")] = "markdown",
    output: Annotated[Path | None, typer.Option(help="Write to this file instead of standard output.")] = None,
    publish: Annotated[Path | None, typer.Option(help="Folder to publish into, as hierbench publish does.")] = None,
) -> None:
    """Print the table of a dataset, from the runs on disk, from the paper, or from both side by side.

    Runs are verified first: what is rejected is not counted, and named on standard error. The exit code is 0 where
    there is a table; hierbench verify has one for findings.
    """
    from hierbench.experiments.checking import counted, note, open_board, store_of
    from hierbench.leaderboard.board import Board
    from hierbench.leaderboard.columns import asked_columns
    from hierbench.leaderboard.formats import render
    from hierbench.leaderboard.tables.board import board_table

    if publish is not None and source != "runs":
        raise UserError("--publish is for runs; the paper's tables are already published")
    if publish is not None and (output is not None or format_ != "markdown"):
        option = "--format" if output is None else "--output"
        raise UserError(f"{option} is for the printed table; --publish writes all formats into its folder")
    if protocol is not None and source == "paper":
        raise UserError("--protocol is for runs; the paper's tables are as printed")
    columns = asked_columns(metrics)
    if metrics is not None and source != "runs":
        raise UserError("--metrics is for runs; the paper's tables are as printed")
    if publish is not None:
        from hierbench.experiments.publication.publish import Request
        from hierbench.experiments.publication.publish import publish as publish_table

        request = Request(dataset, publish, runs, data_dir, protocol, None if metrics is None else columns)
        said = publish_table(request)
        print_said(said.notes, said.lines)
        return
    if source == "both":
        from hierbench.leaderboard.ledger import ledger_from_runs, ledger_table

        found = counted(dataset, store_of(dataset, runs), data_dir)
        ledger = ledger_from_runs(dataset, found.store, protocol, found.rejected)
        note([ledger.note] if ledger.note else [])
        return write_result(render(ledger_table(ledger), format_), output)
    paper = source == "paper"
    board = Board.paper(dataset, others=True) if paper else open_board(dataset, runs, data_dir, protocol, columns).board
    write_result(render(board_table(board), format_), output)
