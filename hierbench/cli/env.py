"""`hierbench env`."""

from hierbench.cli.command import command


@command("env")
def env() -> None:
    """Print the environment, for a bug report."""
    import torch

    from hierbench.training.results import environment

    values = environment(torch.device("cuda" if torch.cuda.is_available() else "cpu"))
    for name, value in values.items():
        print(f"{name}: {value}")
