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
    from hierbench.experiments.checking import note
    from hierbench.experiments.verification.checked import board_of, checked_runs, notes_of, with_limit
    from hierbench.leaderboard import ledger, render
    from hierbench.leaderboard.board import damaged_runs
    from hierbench.leaderboard.columns import asked_columns, further
    from hierbench.leaderboard.measured import with_columns
    from hierbench.leaderboard.others import board_of_published
    from hierbench.runs.store import Store

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
    store = Store(runs)
    if source == "paper":
        return write_result(render.FORMATS[format_](board_of_published(dataset)), output)
    if publish is not None:
        from hierbench.experiments.publication.publish import Request
        from hierbench.experiments.publication.publish import publish as publish_table

        request = Request(dataset, publish, runs, data_dir, protocol, None if metrics is None else columns)
        said = publish_table(request)
        print_said(said.notes, said.lines)
        return
    counted, report = checked_runs(dataset, store, data_dir, further(columns))
    damaged = damaged_runs(dataset, counted)
    note(damaged)
    if source == "both":
        both = ledger.ledger_from_runs(dataset, counted, protocol, report.rejected_ids)
        note([*with_limit(notes_of(report, damaged), store), *([both.note] if both.note else [])])
        return write_result(ledger.FORMATS[format_](both), output)
    board = board_of(dataset, counted, report, data_dir, protocol)
    note(with_limit(notes_of(report, damaged), store))
    if metrics is not None:
        board = with_columns(board, columns, store, data_dir)
    write_result(render.FORMATS[format_](board), output)
