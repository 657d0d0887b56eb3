"""`hierbench leaderboard`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hierbench.cli.options import (
    DatasetOption,
    Format,
    ProtocolName,
    RunsOption,
    SourceOfTable,
    write_result,
)
from hierbench.utils.errors import UserError

if TYPE_CHECKING:
    from hierbench.config.recipe import Protocol


def leaderboard(
    dataset: DatasetOption,
    runs: RunsOption = Path("runs"),
    source: Annotated[SourceOfTable, typer.Option(help="Our runs, the published table, or both side by side.")] = (
        SourceOfTable.runs
    ),
    protocol: Annotated[
        ProtocolName | None, typer.Option(help="Of the runs; by default that of the newest, two are never mixed.")
    ] = None,
    format_: Annotated[Format, typer.Option("--format", help="Of the table.")] = Format.markdown,
    output: Annotated[Path | None, typer.Option(help="File to write instead of standard output.")] = None,
    publish: Annotated[Path | None, typer.Option(help="Folder that gets the table and its run records.")] = None,
) -> None:
    """Print the table of a dataset from the runs on disk, from the paper, or a ledger of the two."""
    from hierbench.leaderboard import ledger, render
    from hierbench.leaderboard.board import board_from_paper, board_from_runs, damaged_runs
    from hierbench.leaderboard.publish import publish_board
    from hierbench.runs.store import Store

    if publish is not None and source != "runs":
        raise UserError("--publish is for runs; the paper's tables are published")
    if protocol is not None and source == "paper":
        raise UserError("--protocol is for runs; the paper's tables are as printed")
    which: Protocol | None = None if protocol is None else protocol.value
    if source != "paper":
        for line in damaged_runs(dataset, Store(runs)):
            print(f"note: {line}", file=sys.stderr, flush=True)
    if source == "both":
        both = ledger.ledger_from_runs(dataset, Store(runs), which)
        if both.note:
            print(f"note: {both.note}", file=sys.stderr, flush=True)
        return write_result(ledger.FORMATS[format_.value](both), output)
    board = board_from_paper(dataset) if source == "paper" else board_from_runs(dataset, Store(runs), protocol=which)
    if publish is not None:
        print(f"wrote {publish_board(board, Store(runs), publish)}, its JSON and the records of its runs")
        return
    write_result(render.FORMATS[format_.value](board), output)
