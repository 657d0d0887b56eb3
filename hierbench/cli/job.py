"""`hierbench job`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hierbench.cli.options import DataOption, Device, DeviceOption, DevicesOption, RunsOption, WeightsOption


def job(
    id_: Annotated[str, typer.Argument(metavar="ID", help="Of a planned job, or the beginning of its id.")],
    runs: RunsOption = Path("runs"),
    data_dir: DataOption = Path("data"),
    device: DeviceOption = Device.auto,
    devices: DevicesOption = 1,
    method: Annotated[Path | None, typer.Option(help="File of a method that is not installed.")] = None,
    weights: WeightsOption = None,
    threads: Annotated[int | None, typer.Option(min=1, help="CPU threads; by default 1 on a CPU.")] = None,
) -> None:
    """Run one job of hierbench run --plan-only, under any scheduler."""
    from hierbench.execution.standalone import run_one
    from hierbench.planning.resources import Setting, choose_device, side_by_side

    chosen = choose_device(device.value)
    side_by_side(1, chosen, devices)  # refuses more devices than there are
    if threads is None and chosen == "cpu":
        threads = 1  # whatever machine it comes to: the numbers depend on it
    setting = Setting(runs.resolve(), data_dir.resolve(), chosen, threads=threads, devices=devices, weights=weights)
    raise typer.Exit(run_one(id_, method, setting))
