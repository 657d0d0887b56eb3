"""`hierbench env`."""

from hierbench.cli.command import command
from hierbench.leaderboard.table import Line, Table, Text


@command("env", table="terminal", output=None)
def env() -> Table:
    """Print the environment, for a bug report."""
    import torch

    from hierbench.training.results import environment

    values = environment(torch.device("cuda" if torch.cuda.is_available() else "cpu"))
    return Table(
        "Environment", ("Name", "Value"), [Line([Text(name), Text(f"{value}")]) for name, value in values.items()]
    )
