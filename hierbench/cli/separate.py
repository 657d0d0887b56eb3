"""`hierbench separate`."""

from typing import Annotated

import typer

from hierbench.cli.command import command
from hierbench.config.options import Options
from hierbench.leaderboard.table import Shown


@command(
    "separate crm:type-I ce:type-I --dataset shapes --max-seeds 4 --set train.epochs=1",
    table="markdown",
    methods="",
    plan_only=False,
)
def separate(
    first: Annotated[str, typer.Argument(metavar="METHOD:TYPE", help="A row.")],
    other: Annotated[str, typer.Argument(metavar="METHOD:TYPE", help="The row that it is compared with.")],
    options: Options,
    max_seeds: Annotated[int, "Seeds at the last look; they are part of the design."],
    seeds: Annotated[int, "Seeds at the first look."] = 3,
    metric: Annotated[str, "One of the paper's metrics."] = "mistake_severity",
    tuned: Annotated[bool, "Use the hyperparameters that hierbench tune found."] = False,
) -> Shown:
    """Train further seeds of two rows until a test separates them.

    The number of looks and the level of each are fixed before the first (docs/seeds.md).
    """
    from hierbench.studies.separation import separate as separate_rows

    return separate_rows(options, (first, other), max_seeds, metric, tuned=tuned)
