"""`hierbench power`."""

import math
from dataclasses import replace
from typing import Annotated

import typer

from hierbench.cli.command import command
from hierbench.cli.shared_options import NumbersOption, dataset_option
from hierbench.config.options import RunSelection
from hierbench.leaderboard.table import Table
from hierbench.utils.errors import UserError

DEFAULT = "mistake_severity"
LOWEST = 0.0001  # level: that of 500 comparisons


@command("power haframe:type-II hafeature:type-I --dataset cifar100 --numbers paper", table="markdown")
def power(
    rows: Annotated[
        list[str] | None, typer.Argument(metavar="A B", help="Two rows, METHOD[:TYPE] each; without a type, all types.")
    ] = None,
    dataset: Annotated[str | None, dataset_option("Of the rows; not needed with --difference, --deviation.")] = None,
    metric: Annotated[str | None, "Metric of the rows; by default mistake_severity."] = None,
    target: Annotated[float, typer.Option("--power", help="Chance of finding the difference.")] = 0.8,
    level: Annotated[float, "Level of the two-sided test."] = 0.05,
    difference: Annotated[float | None, "Plan for this difference; by default that of the rows."] = None,
    deviation: Annotated[
        float | None, "Standard deviation over seeds, of the paired differences (or of each row)."
    ] = None,
    unpaired: Annotated[bool, "Plan for rows that share no seeds."] = False,
    numbers: NumbersOption = "runs",
    *,
    selection: RunSelection,
) -> Table:
    """Print how many seeds separate two rows.

    From their runs, from published intervals, or from planned numbers.
    """
    from hierbench.leaderboard.columns import PAPER_COLUMNS, find_column, further_names
    from hierbench.leaderboard.open_board import open_board
    from hierbench.leaderboard.power_analysis import Effect, effects_between, plan
    from hierbench.leaderboard.tables.power_table import power_table

    _check(target, level, difference, deviation)
    if difference is not None and deviation is not None:
        row_options = {"--dataset": dataset, "rows": rows, "--metric": metric, "--protocol": selection.protocol}
        named = [name for name, value in row_options.items() if value] + ["--numbers paper"] * (numbers == "paper")
        if named:
            raise UserError(f"--difference and --deviation leave nothing to take from rows; leave out {named[0]}")
        assumed = Effect(difference, (deviation,) * (2 if unpaired else 1))
        return power_table([plan(assumed, target, level)], target, level)
    if dataset is None or rows is None or len(rows) != 2:
        raise UserError("give --dataset and two rows, METHOD[:TYPE] each, or --difference and --deviation")
    if numbers == "paper" and unpaired:
        raise UserError("--unpaired is for runs; the rows of the paper's tables are never paired")
    column = find_column(metric or DEFAULT)
    columns = [column] if further_names([column]) else PAPER_COLUMNS
    board = open_board(dataset, selection, columns, numbers, with_unranked=False)
    plans = []
    for row, reference, effect in effects_between(board, (rows[0], rows[1]), column, paired=not unpaired):
        if difference is not None:
            effect = replace(effect, difference=difference, ci95=None)
        if deviation is not None:
            effect = replace(effect, deviations=(deviation,) * len(effect.deviations), ci95=None)
        plans.append(replace(plan(effect, target, level), row=row, reference=reference))
    return power_table(plans, target, level, dataset=board.dataset, protocol=board.protocol, metric=column.name)


def _check(target: float, level: float, difference: float | None, deviation: float | None) -> None:
    """Raise a UserError for a number that no plan can be made with."""
    if not LOWEST <= level < 1:
        raise UserError(f"--level {level:g}: must be at least {LOWEST} and below 1, as in 0.05")
    if not level < target < 1:
        raise UserError(f"--power {target:g}: must be above the level, {level:g}, and below 1, as in 0.8")
    if difference is not None and not math.isfinite(difference):
        raise UserError(f"--difference {difference:g}: must be a finite number")
    if deviation is not None and not 0 < deviation < math.inf:
        raise UserError(f"--deviation {deviation:g}: must be a finite number above 0")
