"""The entry point: registers all commands and turns errors into one line and an exit code."""

import io
import os
import sys
from typing import Annotated

import typer

from hierbench.cli import data, methods, repository, site
from hierbench.cli.bench import bench
from hierbench.cli.collapse import collapse
from hierbench.cli.compare import compare
from hierbench.cli.export import export
from hierbench.cli.leaderboard import leaderboard
from hierbench.cli.mistakes import mistakes
from hierbench.cli.plot import plot
from hierbench.cli.power import power
from hierbench.cli.publish import publish
from hierbench.cli.reproduce import reproduce
from hierbench.cli.run import ablate, job, run
from hierbench.cli.score import score
from hierbench.cli.submit import submit
from hierbench.cli.tune import tune
from hierbench.cli.verify import verify
from hierbench.utils.errors import MAX_ERROR, UserError
from hierbench.utils.text import one_line

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None)
COMMANDS = (
    run,
    job,
    leaderboard,
    publish,
    submit,
    export,
    compare,
    power,
    verify,
    reproduce,
    score,
    ablate,
    collapse,
    plot,
    mistakes,
    tune,
    bench,
)
for command in COMMANDS:
    app.command()(command)
app.add_typer(methods.app, name="methods")
app.add_typer(data.app, name="data")
app.add_typer(repository.app, name="repository")
app.add_typer(site.app, name="site")


def _say_version(asked: bool) -> None:
    if asked:
        from hierbench import __version__

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
    """Print the environment, for a bug report."""
    import torch

    from hierbench.training.results import environment

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    for name, value in environment(device).items():
        print(f"{name:16} {value}")


def main() -> None:
    """Run the command line: a user's mistake prints one line and exits with 2, an interrupt with 130."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # terminals without arrows get question marks
    try:
        if (code := app(prog_name="hierbench", standalone_mode=False)) == 130:
            raise KeyboardInterrupt  # Typer turned it into an exit code
    except (UserError, typer.TyperException) as error:
        text = error.format_message() if isinstance(error, typer.TyperException) else str(error)
        if type(error).__name__ == "NoArgsIsHelpError":
            print(text)
            raise SystemExit(2) from None
        _end(text, 2)
    except (KeyboardInterrupt, typer.Abort):
        _end("interrupted; finished work is kept, and the same command resumes it", 130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader closed the pipe
        code = 0
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        _end(f"{where}{error.strerror or error}", 1)
    except MemoryError:
        _end("not enough memory", 1)
    raise SystemExit(code if isinstance(code, int) else 0)


def _end(line: str, code: int) -> None:
    print(f"hierbench: error: {one_line(line, MAX_ERROR)}", file=sys.stderr)
    raise SystemExit(code)
