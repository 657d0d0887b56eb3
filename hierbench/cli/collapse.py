"""`hierbench collapse`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hierbench.cli.options import (
    DataOption,
    DatasetOption,
    Device,
    DeviceOption,
    DevicesOption,
    DryRunOption,
    JobsOption,
    JobsPerGpuOption,
    MlflowOption,
    OverridesOption,
    ProtocolName,
    ProtocolOption,
    RunsOption,
    WeightsOption,
)


def collapse(
    dataset: DatasetOption,
    every: Annotated[
        int | None,
        typer.Option(min=1, help="Epochs between snapshots; by default 5, or a twentieth of fewer than 100 epochs."),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds; the figure shows their mean and range.")] = 1,
    overrides: OverridesOption = None,
    protocol: ProtocolOption = ProtocolName.paper,
    weights: WeightsOption = None,
    runs: RunsOption = Path("runs"),
    data_dir: DataOption = Path("data"),
    device: DeviceOption = Device.auto,
    jobs: JobsOption = None,
    jobs_per_gpu: JobsPerGpuOption = 1,
    devices: DevicesOption = 1,
    mlflow: MlflowOption = None,
    dry_run: DryRunOption = False,
) -> None:
    """Watch HAFrame and cross-entropy collapse onto their frames while they train: figure, data and summary."""
    from hierbench.config.options import Options
    from hierbench.experiments.collapse.run import collapse

    options = Options(
        methods="ce,haframe",
        dataset=dataset,
        types="type-I,type-II",
        seeds=seeds,
        overrides=overrides or [],
        protocol=protocol.value,
        weights=weights,
        runs=runs,
        data_dir=data_dir,
        device=device.value,
        workers=jobs,
        devices=devices,
        jobs_per_gpu=jobs_per_gpu,
        mlflow=mlflow,
        dry_run=dry_run,
        as_json=False,
    )
    raise typer.Exit(collapse(options, every))
