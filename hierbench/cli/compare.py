"""`hierbench compare`."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from hierbench.cli.options import MetricsOption, ProtocolOfRuns, write_result
from hierbench.config.options import DataOption, DatasetOption, RunsOption


def compare(
    dataset: DatasetOption,
    reference: Annotated[str, typer.Argument(help="METHOD[:TYPE]; without a type, the row of each row's own type.")],
    rows: Annotated[list[str] | None, typer.Argument(help="METHOD[:TYPE] to compare with it; by default all.")] = None,
    runs: RunsOption = Path("runs"),
    data_dir: DataOption = Path("data"),
    protocol: ProtocolOfRuns = None,
    metrics: MetricsOption = None,
    format_: Annotated[Literal["markdown", "csv", "json"], typer.Option("--format", help="Format.")] = "markdown",
    output: Annotated[Path | None, typer.Option(help="Write to this file instead of standard output.")] = None,
) -> None:
    """Print how far rows of a table are from a reference, paired by seed, with intervals and adjusted p values."""
    from hierbench.leaderboard.board import board_from_runs
    from hierbench.leaderboard.columns import asked_columns
    from hierbench.leaderboard.measured import with_columns
    from hierbench.leaderboard.paired import compare_rows
    from hierbench.leaderboard.paired_tables import FORMATS
    from hierbench.runs.store import Store

    columns = asked_columns(metrics)
    board = board_from_runs(dataset, Store(runs), protocol=protocol)
    if metrics is not None:
        board = with_columns(board, columns, Store(runs), data_dir)
    write_result(FORMATS[format_](board, compare_rows(board, Store(runs), reference, rows or ())), output)
