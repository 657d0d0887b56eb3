"""`hierbench power`."""

import math
from dataclasses import replace
from typing import Annotated

import typer

from hierbench.cli.command import command
from hierbench.config.options import DatasetOption, RunSelection
from hierbench.leaderboard.table import Table
from hierbench.utils.errors import UserError


@command("power haframe:type-II ce:type-II --dataset shapes", table="markdown", protocol=None, request=None)
def power(
    row: Annotated[str, typer.Argument(metavar="ROW", help="METHOD[:TYPE]; without a type, all types.")],
    reference: Annotated[str, typer.Argument(metavar="REFERENCE", help="Likewise.")],
    *,
    dataset: DatasetOption,
    selection: RunSelection,
    metric: Annotated[str, "Metric of the rows."] = "mistake_severity",
    difference: Annotated[float | None, "Plan for this difference; by default that of the rows."] = None,
) -> Table:
    """Print how many seeds separate two rows with a chance of 80 %."""
    from hierbench.leaderboard.columns import PAPER_COLUMNS, find_column, further_names
    from hierbench.leaderboard.open_board import open_board
    from hierbench.leaderboard.power_analysis import effects_between, plan
    from hierbench.leaderboard.tables.power_table import power_table

    if difference is not None and not math.isfinite(difference):
        raise UserError(f"--difference {difference:g}: must be a finite number")
    column = find_column(metric)
    columns = [column] if further_names([column]) else PAPER_COLUMNS
    board = open_board(dataset, selection, columns, with_unranked=False)
    plans = []
    for found_row, other, effect in effects_between(board, (row, reference), column):
        if difference is not None:
            effect = replace(effect, difference=difference, ci95=None)
        plans.append(replace(plan(effect), row=found_row, reference=other))
    return power_table(plans, board, column.name)
