"""`hierbench collapse`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hierbench.cli.main import options as shared


def collapse(
    dataset: shared.DatasetOption,
    every: Annotated[
        int | None,
        typer.Option(min=1, help="Epochs between snapshots; by default 5, or a twentieth of fewer than 100 epochs."),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds; the figure shows their mean and range.")] = 1,
    overrides: shared.OverridesOption = None,
    protocol: shared.ProtocolOption = shared.ProtocolName.paper,
    weights: shared.WeightsOption = None,
    runs: shared.RunsOption = Path("runs"),
    data_dir: shared.DataOption = Path("data"),
    device: shared.DeviceOption = shared.Device.auto,
    jobs: shared.JobsOption = None,
    jobs_per_gpu: shared.JobsPerGpuOption = 1,
    devices: shared.DevicesOption = 1,
    mlflow: shared.MlflowOption = None,
    dry_run: shared.DryRunOption = False,
) -> None:
    """Watch HAFrame and cross-entropy collapse onto their frames while they train: figure, data and summary."""
    arguments = locals()
    from hierbench.experiments.collapse.run import collapse

    options = shared.options_of(arguments, methods="ce,haframe", types="type-I,type-II")
    raise typer.Exit(collapse(options, every))
