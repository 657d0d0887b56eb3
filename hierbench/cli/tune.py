"""`hierbench tune`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from hierbench.cli.options import (
    AddressOption,
    DataOption,
    DatasetOption,
    Device,
    DeviceOption,
    DevicesOption,
    DryRunOption,
    Executor,
    ExecutorOption,
    JobsOption,
    JobsPerGpuOption,
    MlflowOption,
    OverridesOption,
    ProtocolName,
    ProtocolOption,
    RunsOption,
    WeightsOption,
    check_executor,
)
from hierbench.utils.errors import UserError


class Sampler(StrEnum):
    """How configurations are chosen."""

    grid = "grid"
    tpe = "tpe"


def tune(
    dataset: DatasetOption,
    method: Annotated[str, typer.Option("--method", help="Names and paths separated by commas.")] = "haframe",
    types: Annotated[str, typer.Option(help="Feature extractors, separated by commas.")] = "type-I,type-II",
    sampler: Annotated[
        Sampler, typer.Option(help="Every point of the grid, or TPE with median pruning.")
    ] = Sampler.grid,
    trials: Annotated[
        int | None, typer.Option(min=1, help="Configurations of TPE; by default as the grid has.")
    ] = None,
    storage: Annotated[
        str | None, typer.Option(help="Database that records the search; by default a SQLite file in the runs folder.")
    ] = None,
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
    executor: ExecutorOption = Executor.local,
    address: AddressOption = None,
    dry_run: DryRunOption = False,
    output: Annotated[
        Path | None, typer.Option(help="File for the winner; by default tuned/<dataset>.toml in the runs folder.")
    ] = None,
) -> None:
    """Search a method's hyperparameters on the validation set, and keep the best for run --tuned."""
    check_executor(executor, address, jobs)
    if executor == "ray" and sampler == "tpe":
        raise UserError("--sampler tpe is for this machine; --executor ray searches grids")
    from hierbench.config.options import Options
    from hierbench.experiments.tuning.tune import tune as search

    options = Options(
        methods=method,
        dataset=dataset,
        types=types,
        seeds=None,
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
        executor=executor.value,
        address=address,
    )
    raise typer.Exit(search(options, storage, sampler.value, trials, output))
