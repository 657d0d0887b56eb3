"""`hierbench bench`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer


class BenchDevice(StrEnum):
    """Where to measure: those that can be waited for."""

    auto = "auto"
    cpu = "cpu"
    cuda = "cuda"


def bench(
    device: Annotated[BenchDevice, typer.Option(help="Where to measure.")] = BenchDevice.auto,
    quick: Annotated[bool, typer.Option("--quick", help="One round instead of three: a rough look.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")] = False,
) -> None:
    """Measure this machine: training steps, evaluation, CRM, the frame and preparing; about a minute."""
    import json
    from dataclasses import asdict

    from hierbench.experiments.bench import QUICK, Sizes, parts_of
    from hierbench.experiments.bench import bench as measure
    from hierbench.experiments.bench_report import table
    from hierbench.planning.resources import choose_device
    from hierbench.utils.console import Meter

    place = choose_device(device.value)
    parts = parts_of(place)
    with Meter("measuring", len(parts)) as meter:
        running: list[str] = []

        def on_part(name: str) -> None:
            if running:
                meter.end_part(running.pop(), 1.0)
            running.append(name)
            meter.part(name, 0.0, 1.0)
            meter.say(f"measuring: {name} ({parts.index(name) + 1} of {len(parts)})")

        report = measure(place, QUICK if quick else Sizes(), on_part)
    if as_json:
        print(json.dumps({"schema": 1} | asdict(report), indent=1, allow_nan=False))
    else:
        print(table(report), end="")
