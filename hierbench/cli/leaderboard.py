"""`hierbench leaderboard`."""

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from hierbench.cli.options import MetricsOption, ProtocolOfRuns, TableFormat, write_result
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
    publish: Annotated[Path | None, typer.Option(help="Folder for the table and the records of its runs.")] = None,
) -> None:
    """Print the table of a dataset, from the runs on disk, from the paper, or from both side by side."""
    from hierbench.leaderboard import ledger, render
    from hierbench.leaderboard.board import board_with_scored, damaged_runs
    from hierbench.leaderboard.columns import asked_columns
    from hierbench.leaderboard.measured import with_columns
    from hierbench.leaderboard.others import board_of_published
    from hierbench.leaderboard.publish import publish_board
    from hierbench.runs.store import Store

    if publish is not None and source != "runs":
        raise UserError("--publish is for runs; the paper's tables are already published")
    if protocol is not None and source == "paper":
        raise UserError("--protocol is for runs; the paper's tables are as printed")
    columns = asked_columns(metrics)
    if metrics is not None and source != "runs":
        raise UserError("--metrics is for runs; the paper's tables are as printed")
    if source != "paper":
        for line in damaged_runs(dataset, Store(runs)):
            print(f"note: {line}", file=sys.stderr, flush=True)
    if source == "both":
        both = ledger.ledger_from_runs(dataset, Store(runs), protocol)
        if both.note:
            print(f"note: {both.note}", file=sys.stderr, flush=True)
        return write_result(ledger.FORMATS[format_](both), output)
    board = board_of_published(dataset) if source == "paper" else board_with_scored(dataset, Store(runs), protocol)
    if metrics is not None:
        board = with_columns(board, columns, Store(runs), data_dir)
    if publish is not None:
        print(f"wrote {publish_board(board, Store(runs), publish)}, its JSON and the records of its runs")
        return
    write_result(render.FORMATS[format_](board), output)
