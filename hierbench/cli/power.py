"""`hierbench power`."""

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from hierbench.cli.options import ProtocolOfRuns, write_result
from hierbench.config.names import complete_dataset
from hierbench.config.options import DataOption, RunsOption
from hierbench.utils.errors import UserError

if TYPE_CHECKING:
    from hierbench.config.sections import Protocol
    from hierbench.leaderboard.board import Board
    from hierbench.leaderboard.power import Effect
    from hierbench.leaderboard.statistics import Row

    Found = tuple[Board, str, list[tuple[Row, Row, Effect]]]  # with the name of the metric

DEFAULT = "mistake_severity"
LOWEST = 0.0001  # level: that of 500 comparisons


def power(
    rows: Annotated[
        list[str] | None, typer.Argument(metavar="A B", help="METHOD[:TYPE] twice; without a type, of each type.")
    ] = None,
    dataset: Annotated[
        str | None,
        typer.Option(
            "--dataset",
            help="Of the rows; not needed with --difference and --deviation.",
            autocompletion=complete_dataset,
        ),
    ] = None,
    metric: Annotated[
        str | None, typer.Option("--metric", help="Metric of the rows; by default mistake_severity.")
    ] = None,
    target: Annotated[float, typer.Option("--power", help="Chance of finding the difference.")] = 0.8,
    level: Annotated[float, typer.Option("--level", help="Of the two-sided test.")] = 0.05,
    difference: Annotated[
        float | None, typer.Option("--difference", help="Plan for this difference; by default that of the rows.")
    ] = None,
    deviation: Annotated[
        float | None,
        typer.Option(
            "--deviation", help="Plan for this deviation over seeds, of the paired differences (or of each row)."
        ),
    ] = None,
    unpaired: Annotated[bool, typer.Option("--unpaired", help="Plan for rows that share no seeds.")] = False,
    source: Annotated[
        Literal["runs", "paper"], typer.Option(help="Our runs, or the published table, whose rows are not paired.")
    ] = "runs",
    runs: RunsOption = Path("runs"),
    data_dir: DataOption = Path("data"),
    protocol: ProtocolOfRuns = None,
    format_: Annotated[Literal["markdown", "csv", "json"], typer.Option("--format", help="Format.")] = "markdown",
    output: Annotated[Path | None, typer.Option(help="Write to this file instead of standard output.")] = None,
) -> None:
    """Print how many seeds separate two rows: from their runs, from published intervals, or planned."""
    from hierbench.leaderboard.formats import render
    from hierbench.leaderboard.power import Effect, plan
    from hierbench.leaderboard.tables.power import Setting, power_table

    _check(target, level, difference, deviation)
    if difference is not None and deviation is not None:
        given = {"--dataset": dataset, "rows": rows, "--metric": metric, "--protocol": protocol}
        named = [name for name, value in given.items() if value] + ["--source paper"] * (source == "paper")
        if named:
            raise UserError(f"--difference and --deviation leave nothing to take from rows; leave out {named[0]}")
        assumed = Effect(difference, (deviation,) * (2 if unpaired else 1))
        return write_result(
            render(power_table(Setting(target, level), [plan(assumed, target, level)]), format_), output
        )
    if dataset is None or rows is None or len(rows) != 2:
        raise UserError("give --dataset and two rows, METHOD[:TYPE] each, or --difference and --deviation")
    if source == "paper" and unpaired:
        raise UserError("--unpaired is for runs; the rows of the paper's tables are never paired")
    board, metric, found = (
        _of_paper(dataset, (rows[0], rows[1]), metric, protocol)
        if source == "paper"
        else _of_runs(dataset, (rows[0], rows[1]), metric, runs, data_dir, protocol, unpaired)
    )
    plans = []
    for row, reference, effect in found:
        if difference is not None:
            effect = replace(effect, difference=difference, ci95=None)
        if deviation is not None:
            effect = replace(effect, deviations=(deviation,) * len(effect.deviations), ci95=None)
        plans.append(replace(plan(effect, target, level), row=row, reference=reference))
    setting = Setting(target, level, board.dataset, board.protocol, metric)
    write_result(render(power_table(setting, plans), format_), output)


def _of_paper(dataset: str, rows: tuple[str, str], metric: str | None, protocol: "Protocol | None") -> "Found":
    from hierbench.leaderboard.board import Board
    from hierbench.leaderboard.columns import column_of, further
    from hierbench.leaderboard.power import effects_of_paper

    column = column_of(metric or DEFAULT)
    if protocol is not None or further([column]):
        raise UserError("the paper's tables have its own metrics and no protocols; leave out --source paper")
    board = Board.paper(dataset)
    return board, column.name, effects_of_paper(board, rows, column)


def _of_runs(
    dataset: str,
    rows: tuple[str, str],
    metric: str | None,
    runs: Path,
    data_dir: Path,
    protocol: "Protocol | None",
    unpaired: bool,
) -> "Found":
    from hierbench.experiments.checking import open_board
    from hierbench.leaderboard.columns import PAPER, column_of, further
    from hierbench.leaderboard.power import effects_of_runs

    column = column_of(metric or DEFAULT)
    found = open_board(dataset, runs, data_dir, protocol, [column] if further([column]) else PAPER)
    return found.board, column.name, effects_of_runs(found.board, found.store, rows, column, paired=not unpaired)


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
