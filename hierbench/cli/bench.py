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
    from hierbench.planning.resources import choose_device
    from hierbench.speed.bench import QUICK, Sizes, bench_table
    from hierbench.speed.bench import bench as measure

    return bench_table(measure(choose_device(device), QUICK if quick else Sizes()))


@command("env", table="terminal")
def env() -> Table:
    """Print the environment, for a bug report."""
    import torch

    from hierbench.training.results import environment

    found = environment(torch.device("cuda" if torch.cuda.is_available() else "cpu"))
    return Table("Environment", ("Name", "Value"), [Line([Text(name), Text(f"{of}")]) for name, of in found.items()])
