"""`hierbench verify`."""

from pathlib import Path
from typing import Annotated

import typer

from hierbench.cli.command import command, write_result
from hierbench.cli.options import JsonOption
from hierbench.config.options import DataOption, DeviceOption, WeightsOption
from hierbench.utils.errors import UserError


@command("verify runs")
def verify(
    paths: Annotated[
        list[Path], typer.Argument(metavar="PATH...", help="A runs folder, or the records of a published table.")
    ],
    data_dir: DataOption = Path("data"),
    retrain: Annotated[
        int, typer.Option(min=0, max=10_000, help="Train so many runs of each folder again, drawn at random.")
    ] = 0,
    device: DeviceOption = "auto",
    weights: WeightsOption = None,
    all_metrics: Annotated[bool, "Compute all kept metrics again, not only those that a table shows."] = False,
    as_json: JsonOption = False,
) -> int:
    """Say of each run what follows from its predictions.

    What is only claimed is said, and what is rejected, and why.

    Exit code 0 if nothing is rejected, 1 if something is.
    """
    if (device != "auto" or weights is not None) and not retrain:
        raise UserError(f"{'--device' if weights is None else '--weights'} is for --retrain N; nothing else needs it")
    from hierbench.sharing.verification import report
    from hierbench.sharing.verification.verify import verify as verify_folders

    found = verify_folders(paths, data_dir, retrain, device, weights, all_metrics=all_metrics)
    write_result((report.as_json if as_json else report.as_text)(found), None)
    return 1 if any(one.num_rejected for one in found) else 0
