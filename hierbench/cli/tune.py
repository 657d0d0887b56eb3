"""`hierbench tune`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from hierbench.cli.main import options as shared
from hierbench.utils.errors import UserError


class Sampler(StrEnum):
    """How configurations are chosen."""

    grid = "grid"
    tpe = "tpe"


def tune(
    dataset: shared.DatasetOption,
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
    executor: shared.ExecutorOption = shared.Executor.local,
    address: shared.AddressOption = None,
    dry_run: shared.DryRunOption = False,
    output: Annotated[
        Path | None, typer.Option(help="File for the winner; by default tuned/<dataset>.toml in the runs folder.")
    ] = None,
) -> None:
    """Search a method's hyperparameters on the validation set, and keep the best for run --tuned."""
    arguments = locals()
    shared.check_executor(executor, address, jobs)
    if executor == "ray" and sampler == "tpe":
        raise UserError("--sampler tpe is for this machine; --executor ray searches grids")
    from hierbench.experiments.tuning.tune import tune as search

    options = shared.options_of(arguments, methods=method)
    raise typer.Exit(search(options, storage, sampler.value, trials, output))
