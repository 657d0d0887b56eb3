"""`hierbench verify`."""

from pathlib import Path
from typing import Annotated

import typer

from hierbench.cli.command import command
from hierbench.config.options import DataOption, WeightsOption
from hierbench.leaderboard.table import CommandOutput
from hierbench.utils.errors import UserError


@command("verify runs", table="terminal")
def verify(
    paths: Annotated[
        list[Path], typer.Argument(metavar="PATH...", help="A runs folder, or the records of a published table.")
    ],
    data_dir: DataOption = Path("data"),
    retrain: Annotated[
        int, typer.Option(min=0, max=10_000, help="Number of runs of each folder to train again, drawn at random.")
    ] = 0,
    weights: WeightsOption = None,
    all_metrics: Annotated[bool, "Compute all kept metrics again, not only those that a table shows."] = False,
) -> CommandOutput:
    """Recompute runs from their predictions, and give each a verdict.

    Claimed runs are marked, and rejected ones listed with reasons.

    Exit code 0 if nothing is rejected, 1 if something is.
    """
    if weights is not None and not retrain:
        raise UserError("--weights is for --retrain N; nothing else needs it")
    from hierbench.sharing.verification.verification import verify as verify_folders
    from hierbench.sharing.verification.verification_table import verification_table

    reports = verify_folders(paths, data_dir, retrain, weights, all_metrics=all_metrics)
    return CommandOutput(verification_table(reports), code=1 if any(report.num_rejected for report in reports) else 0)
