"""`hierbench bench`."""

from typing import Annotated, Literal

import typer


def bench(
    device: Annotated[Literal["auto", "cpu", "cuda"], typer.Option(help="Device to measure.")] = "auto",
    quick: Annotated[bool, typer.Option("--quick", help="One round instead of three, for a rough estimate.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")] = False,
) -> None:
    """Benchmark this machine: training steps, methods, evaluation, CRM, the frame and preparing; takes minutes."""
    import json

    from hierbench.experiments.bench import QUICK, Sizes, parts_of
    from hierbench.experiments.bench import bench as measure
    from hierbench.experiments.bench_report import table
    from hierbench.planning.resources import choose_device
    from hierbench.utils.console import Meter

    place = choose_device(device)
    parts = parts_of(place)
    with Meter("measuring", len(parts)) as meter:

        def on_part(name: str) -> None:
            for ended in list(meter.parts):
                meter.end_part(ended, 1.0)
            meter.part(name, 0.0, 1.0)
            meter.say(f"measuring: {name} ({parts.index(name) + 1} of {len(parts)})")

        report = measure(place, QUICK if quick else Sizes(), on_part)
    if as_json:
        print(json.dumps({"schema": 1} | report, indent=1, allow_nan=False))
    else:
        print(table(report), end="")
