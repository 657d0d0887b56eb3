"""`hierbench compare`."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from hierbench.cli.options import MetricsOption, ProtocolOfRuns, write_result
from hierbench.config.options import DataOption, DatasetOption, RunsOption
from hierbench.utils.errors import UserError


def compare(
    dataset: DatasetOption,
    reference: Annotated[
        str | None, typer.Argument(help="METHOD[:TYPE]; without a type, the row of each row's own type.")
    ] = None,
    rows: Annotated[list[str] | None, typer.Argument(help="METHOD[:TYPE] to compare with it; by default all.")] = None,
    runs: RunsOption = Path("runs"),
    data_dir: DataOption = Path("data"),
    protocol: ProtocolOfRuns = None,
    metrics: MetricsOption = None,
    ties: Annotated[
        str | None,
        typer.Option(
            metavar="METRIC", help="Compare all pairs of the rows (by default all rows) and print groups of ties."
        ),
    ] = None,
    format_: Annotated[Literal["markdown", "csv", "json"], typer.Option("--format", help="Format.")] = "markdown",
    output: Annotated[Path | None, typer.Option(help="Write to this file instead of standard output.")] = None,
) -> None:
    """Print how far rows of a table are from a reference, paired by seed, with intervals and adjusted p values."""
    from hierbench.leaderboard.board import board_from_runs
    from hierbench.leaderboard.columns import asked_columns, column_of, further
    from hierbench.leaderboard.measured import with_columns
    from hierbench.runs.store import Store

    if ties is not None:
        from hierbench.leaderboard import ties_tables
        from hierbench.leaderboard.ties import tied_rows

        if metrics is not None:
            raise UserError("--ties names its metric; --metrics is for differences from a reference")
        column, names = column_of(ties), [*([reference] if reference else []), *(rows or [])]
        board = board_from_runs(dataset, Store(runs), protocol=protocol)
        if further([column]):
            board = with_columns(board, [column], Store(runs), data_dir)
        groups = tied_rows(board, Store(runs), column, names)
        return write_result(ties_tables.FORMATS[format_](board, groups), output)
    if reference is None:
        raise UserError("Missing argument 'REFERENCE', as METHOD[:TYPE]; or group all rows with --ties METRIC.")

    from hierbench.leaderboard.paired import compare_rows
    from hierbench.leaderboard.paired_tables import FORMATS

    columns = asked_columns(metrics)
    board = board_from_runs(dataset, Store(runs), protocol=protocol)
    if metrics is not None:
        board = with_columns(board, columns, Store(runs), data_dir)
    write_result(FORMATS[format_](board, compare_rows(board, Store(runs), reference, rows or ())), output)
