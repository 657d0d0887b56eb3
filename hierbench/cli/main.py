"""The entry point: registers all commands and turns errors into one line and an exit code."""

import io
import os
import re
import sys
from contextvars import ContextVar
from importlib import import_module
from traceback import print_exception
from typing import Annotated

import typer

from hierbench.cli import data, methods, site
from hierbench.cli.command import group
from hierbench.utils.errors import MAX_ERROR, UserError, as_options
from hierbench.utils.text import one_line

TRAIN = "torchvision timm lightning_fabric optuna sqlalchemy mlflow simplejpeg safetensors pyarrow Bio".split()
EXTRA_BY_MODULE = {**dict.fromkeys(TRAIN, "train"), "datasets": "hf", "huggingface_hub": "hf"}
COMMAND_FILES = """
run leaderboard answers publish compare overview verify reproduce score plot report tune runs env
""".split()  # of the commands, in the order of the help

PANELS = {
    "Train": "run tune ablate",
    "Look": "leaderboard answers compare overview plot report runs",
    "Share": "publish verify reproduce score site",
    "Prepare": "data methods env",
}

app = group(
    "Compare hierarchy-aware image classifiers on the same backbones, data, seeds and metrics.",
    *(
        value
        for name in COMMAND_FILES
        for value in vars(import_module(f"hierbench.cli.{name}")).values()
        if hasattr(value, "example")
    ),
    panels=PANELS,
)
for part in (methods, data, site):
    app.add_typer(part.app, name=part.__name__.rpartition(".")[2])


shows_traceback = ContextVar("shows_traceback", default=False)


def _say_version(is_given: bool) -> None:
    if is_given:
        from hierbench import __version__

        print(f"hierbench {__version__}")
        raise typer.Exit()


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_say_version, is_eager=True)
    ] = False,
    traceback: Annotated[bool, typer.Option("--traceback", help="Show where an error comes from.")] = False,
) -> None:
    """Take the options of the program itself."""
    shows_traceback.set(traceback)


def main() -> None:
    """Run the command line: a user's mistake prints one line and exits with 2, an interrupt with 130."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # terminals without arrows get question marks
    try:
        code = app(prog_name="hierbench", standalone_mode=False)
        if code == 130:
            raise KeyboardInterrupt  # Typer turned it into an exit code
    except (UserError, typer.TyperException) as error:
        if shows_traceback.get():
            error.__suppress_context__ = False  # also the cause that the line stands for
            print_exception(error)
        text = error.format_message() if isinstance(error, typer.TyperException) else as_options(error)
        if type(error).__name__ == "NoArgsIsHelpError":
            print(text)
            raise SystemExit(2) from None
        _end(text, 2)
    except (KeyboardInterrupt, typer.Abort):
        _end("interrupted; finished work is kept, and the same command resumes it", 130)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        extra = EXTRA_BY_MODULE.get(package)
        if extra is None:
            raise
        from hierbench.utils.console import install_command

        _end(f"{package} is not installed; run: {install_command(extra)}", 2)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader closed the pipe
        code = 0
    except OSError as error:
        if shows_traceback.get():
            print_exception(error)
        where = f"{error.filename}: " if error.filename else ""
        _end(f"{where}{error.strerror or error}", 1)
    except MemoryError:
        _end("not enough memory", 1)
    raise SystemExit(code if isinstance(code, int) else 0)


def _end(line: str, code: int) -> None:
    lines = [one_line(part, MAX_ERROR) for part in re.split(r"\n  (?=--)", line)]  # of options to choose from, one each
    print("hierbench: error: " + "\n  ".join(lines), file=sys.stderr)
    raise SystemExit(code)
