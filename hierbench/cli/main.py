"""The command line: all commands under one name, and what becomes of their errors."""

from __future__ import annotations

import io
import os
import sys
from typing import Annotated

import typer

from hierbench import __version__
from hierbench.cli import data, methods
from hierbench.cli.bench import bench
from hierbench.cli.collapse import collapse
from hierbench.cli.leaderboard import leaderboard
from hierbench.cli.mistakes import mistakes
from hierbench.cli.plot import plot
from hierbench.cli.run import ablate, job, run
from hierbench.cli.tune import tune
from hierbench.utils.errors import UserError
from hierbench.utils.text import one_line

LONGEST = 4000  # characters of an error: a name in damaged data may have a million

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command()(run)
app.command()(job)
app.command()(leaderboard)
app.command()(ablate)
app.command()(collapse)
app.command()(plot)
app.command()(mistakes)
app.command()(tune)
app.command()(bench)
app.add_typer(methods.app, name="methods")
app.add_typer(data.app, name="data")


def _say_version(asked: bool) -> None:
    if asked:
        print(f"hierbench {__version__}")
        raise typer.Exit()


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_say_version, is_eager=True)
    ] = False,
) -> None:
    """Compare hierarchy-aware image classifiers on the same backbones, data, seeds and metrics."""


@app.command()
def env() -> None:
    """Print what to paste into a bug report."""
    import torch

    from hierbench.training.results import environment

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    for name, value in environment(device).items():
        print(f"{name:16} {value}")


def main() -> None:
    """Run the command line: a user's mistake is one line and exit code 2, an interrupt 130."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that has no arrows gets question marks
    try:
        code = app(standalone_mode=False)
        if code == 130:
            raise KeyboardInterrupt  # Typer turns it into an exit code
    except (UserError, typer.TyperException) as error:
        text = error.format_message() if isinstance(error, typer.TyperException) else str(error)
        if type(error).__name__ == "NoArgsIsHelpError":
            print(text)
            raise SystemExit(2) from None
        _end(text, 2)
    except (KeyboardInterrupt, typer.Abort):
        _end("interrupted; what is finished is kept, the same command goes on from there", 130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader has left: say no more
        code = 0
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        _end(f"{where}{error.strerror or error}", 1)
    except MemoryError:
        _end("there is not enough memory for this", 1)
    raise SystemExit(code if isinstance(code, int) else 0)


def _end(line: str, code: int) -> None:
    print(f"hierbench: error: {one_line(line, LONGEST)}", file=sys.stderr)
    raise SystemExit(code)
