"""`hierbench bench` and `hierbench env`."""

from typing import Annotated, Literal

from hierbench.cli.command import command
from hierbench.leaderboard.table import Line, Table, Text


@command("bench --quick", table="terminal")
def bench(
    device: Annotated[Literal["auto", "cpu", "cuda"], "Device to measure."] = "auto",
    quick: Annotated[bool, "One round instead of three, for a rough estimate."] = False,
) -> Table:
    """Benchmark this machine: training steps, methods, evaluation, CRM, the frame and preparing; takes minutes."""
    from hierbench.experiments.bench import QUICK, Sizes, parts_of
    from hierbench.experiments.bench import bench as measure
    from hierbench.experiments.bench_report import bench_table
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

        return bench_table(measure(place, QUICK if quick else Sizes(), on_part))


@command("env", table="terminal")
def env() -> Table:
    """Print the environment, for a bug report."""
    import torch

    from hierbench.training.results import environment

    found = environment(torch.device("cuda" if torch.cuda.is_available() else "cpu"))
    return Table("Environment", ("Name", "Value"), [Line([Text(name), Text(f"{of}")]) for name, of in found.items()])
