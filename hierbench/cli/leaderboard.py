"""`hierbench leaderboard`."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from hierbench.cli.command import command, is_given, print_said
from hierbench.cli.options import MetricsOption, Place
from hierbench.config.options import DatasetOption
from hierbench.leaderboard.table import Table
from hierbench.utils.errors import UserError


@command("leaderboard --dataset shapes --format latex --output table.tex", table="markdown")
def leaderboard(
    context: typer.Context,
    dataset: DatasetOption,
    place: Place,
    numbers: Annotated[Literal["runs", "paper", "both"], "Of our runs, of the published table, or of both."] = "runs",
    metrics: MetricsOption = None,
    publish: Annotated[Path | None, "Folder to publish into, as hierbench publish does."] = None,
) -> Table | None:
    """Print the table of a dataset, from the runs on disk, from the paper, or from both side by side.

    Runs are verified first: what is rejected is not counted, and named on standard error. The exit code is 0 where
    there is a table; hierbench verify has one for findings.
    """
    from hierbench.experiments.checking import counted, note, open_board, store_of
    from hierbench.leaderboard.board import Board
    from hierbench.leaderboard.columns import asked_columns
    from hierbench.leaderboard.tables.board import board_table

    if publish is not None and numbers != "runs":
        raise UserError("--publish is for runs; the paper's tables are already published")
    given = [name for name in ("output", "format_", "as_json") if is_given(context, name)]
    if publish is not None and given:
        option = {"output": "--output", "format_": "--format", "as_json": "--json"}[given[0]]
        raise UserError(f"{option} is for the printed table; --publish writes all formats into its folder")
    if place.protocol is not None and numbers == "paper":
        raise UserError("--protocol is for runs; the paper's tables are as printed")
    columns = asked_columns(metrics)
    if metrics is not None and numbers != "runs":
        raise UserError("--metrics is for runs; the paper's tables are as printed")
    if publish is not None:
        from hierbench.experiments.publication.publish import Request
        from hierbench.experiments.publication.publish import publish as publish_table

        request = Request(
            dataset, publish, place.runs, place.data_dir, place.protocol, None if metrics is None else columns
        )
        said = publish_table(request)
        print_said(said.notes, said.lines)
        return None
    if numbers == "both":
        from hierbench.leaderboard.ledger import ledger_from_runs, ledger_table

        found = counted(dataset, store_of(dataset, place.runs), place.data_dir)
        ledger = ledger_from_runs(dataset, found.store, place.protocol, found.rejected)
        note([ledger.note] if ledger.note else [])
        return ledger_table(ledger)
    if numbers == "paper":
        return board_table(Board.paper(dataset, others=True))
    return board_table(open_board(dataset, place.runs, place.data_dir, place.protocol, columns).board)
