"""`hierbench collapse`."""

from typing import Annotated

import typer

from hierbench.cli.command import command
from hierbench.config.options import Options
from hierbench.leaderboard.table import CommandOutput


@command(
    "collapse --dataset shapes --every 5",
    table="markdown",
    methods="ce,haframe",
    types="type-I,type-II",
    protocol="paper",
    source=None,
    jobs_per_gpu=1,
    devices=1,
    executor="local",
    plan_only=False,
)
def collapse(
    options: Options,
    every: Annotated[
        int | None,
        typer.Option(min=1, help="Epochs between snapshots; by default 5, below 100 epochs a twentieth of them."),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Number of seeds; the figure shows their mean and range.")] = 1,
) -> CommandOutput:
    """Track how HAFrame and cross-entropy collapse in training.

    Writes a figure and its data, and prints a summary.
    """
    from hierbench.studies.collapse.collapse_study import collapse

    return collapse(options, every)
