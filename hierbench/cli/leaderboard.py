"""`hierbench leaderboard`."""

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from hierbench.cli.options import Format, MetricsOption, ProtocolOfRuns, write_result
from hierbench.config.options import DataOption, DatasetOption, RunsOption
from hierbench.utils.errors import UserError
from hierbench.utils.text import one_line

LONGEST = 600  # characters of a note


def leaderboard(
    dataset: DatasetOption,
    runs: RunsOption = Path("runs"),
    data_dir: DataOption = Path("data"),
    source: Annotated[
        Literal["runs", "paper", "both"], typer.Option(help="Our runs, the published table, or both side by side.")
    ] = "runs",
    protocol: ProtocolOfRuns = None,
    metrics: MetricsOption = None,
    format_: Annotated[Format, typer.Option("--format", help="Format of the table.")] = "markdown",
    output: Annotated[Path | None, typer.Option(help="Write to this file instead of standard output.")] = None,
    publish: Annotated[Path | None, typer.Option(help="Folder for the table and the records of its runs.")] = None,
) -> None:
    """Print the table of a dataset, from the runs on disk, from the paper, or from both side by side.

    Runs are verified first: what is rejected is not counted, and named on standard error. The exit code is 0 where
    there is a table; hierbench verify has one for findings.
    """
    from hierbench.experiments.verification.checked import board_of, checked_runs, notes_of, with_limit
    from hierbench.leaderboard import ledger, render
    from hierbench.leaderboard.board import damaged_runs
    from hierbench.leaderboard.columns import asked_columns, further
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
    store = Store(runs)
    if source == "paper":
        return write_result(render.FORMATS[format_](board_of_published(dataset)), output)
    counted, report = checked_runs(dataset, store, data_dir, further(columns))
    damaged = damaged_runs(dataset, counted)
    _note(damaged)
    if source == "both":
        both = ledger.ledger_from_runs(dataset, counted, protocol, report.rejected_ids)
        _note([*with_limit(notes_of(report, damaged), store), *([both.note] if both.note else [])])
        return write_result(ledger.FORMATS[format_](both), output)
    board = board_of(dataset, counted, report, data_dir, protocol)
    _note(with_limit(notes_of(report, damaged), store))
    if metrics is not None:
        board = with_columns(board, columns, store, data_dir)
    if publish is not None:
        print(f"wrote {publish_board(board, store, publish)}, its JSON and the records of its runs")
        return
    write_result(render.FORMATS[format_](board), output)


def _note(lines: list[str]) -> None:
    for line in lines:
        print(f"note: {one_line(line, LONGEST)}", file=sys.stderr, flush=True)
