"""`hierbench tune`."""

from typing import Annotated, Literal

import typer

from hierbench.cli.command import command
from hierbench.config.completion import complete_methods
from hierbench.config.options import Options
from hierbench.leaderboard.table import CommandOutput


@command("tune --dataset shapes --types type-II --dry-run", table="terminal", seeds=None, source=None, plan_only=False)
def tune(
    options: Options,
    methods: Annotated[
        str,
        typer.Option("--methods", "--method", help="all, paper, or names and paths.", autocompletion=complete_methods),
    ] = "haframe",
    sampler: Annotated[
        Literal["grid", "random", "tpe"] | None, "All points of the grid, a draw, or TPE; by default the recipe's."
    ] = None,
    trials: Annotated[
        int | None, typer.Option(min=1, help="Configurations of a draw or TPE; by default the recipe's or the grid's.")
    ] = None,
) -> CommandOutput:
    """Search hyperparameters on the validation set, for run --tuned.

    The values are written to tuned/DATASET.toml in the runs folder.
    """
    from hierbench.studies.tuning.tuning_study import tune as search

    return search(options, sampler, trials)
