"""The command line. Heavy imports stay inside the commands, so that help answers at once."""

from __future__ import annotations

import io
import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from hierbench.errors import UserError

app = typer.Typer(
    help="Compare hierarchy-aware image classifiers on the same backbones, data, seeds and metrics.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
methods_app = typer.Typer(help="List, check and start methods.", no_args_is_help=True, rich_markup_mode=None)
data_app = typer.Typer(help="List, prepare and verify datasets.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(methods_app, name="methods")
app.add_typer(data_app, name="data")

RunsOption = Annotated[Path, typer.Option("--runs", help="Folder of all runs.")]
DataOption = Annotated[Path, typer.Option("--data-dir", help="Folder of downloads and prepared datasets.")]
DatasetOption = Annotated[str, typer.Option("--dataset", help="See: hierbench data list.")]


class Format(StrEnum):
    """Of a leaderboard."""

    markdown = "markdown"
    latex = "latex"
    csv = "csv"
    json = "json"


class SourceOfTable(StrEnum):
    """Of a leaderboard's rows."""

    runs = "runs"
    paper = "paper"


class Device(StrEnum):
    """Where to train."""

    auto = "auto"
    cpu = "cpu"
    cuda = "cuda"
    mps = "mps"


@app.command()
def run(
    dataset: DatasetOption,
    methods: Annotated[str, typer.Option(help="all, or names and paths separated by commas.")] = "all",
    types: Annotated[str, typer.Option(help="Feature extractors, separated by commas.")] = "type-I,type-II",
    seeds: Annotated[int | None, typer.Option(help="How many seeds; by default the recipe's number.")] = None,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", help="Override a recipe key, as in train.epochs=3; may be repeated.")
    ] = None,
    runs: RunsOption = Path("runs"),
    data_dir: DataOption = Path("data"),
    device: Annotated[Device, typer.Option(help="Where to train.")] = Device.auto,
    jobs: Annotated[int | None, typer.Option(help="Jobs side by side; by default one per core on a CPU.")] = None,
    mlflow: Annotated[
        str | None, typer.Option(help="MLflow tracking URI, or off; by default a SQLite file in the runs folder.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and stop.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")] = False,
) -> None:
    """Train what is missing, re-rank, and print the leaderboard."""
    from hierbench.compare import Options, compare

    options = Options(
        methods, dataset, types, seeds, overrides or [], runs, data_dir, device.value, jobs, mlflow, dry_run, as_json
    )
    raise typer.Exit(compare(options))


@app.command()
def leaderboard(
    dataset: DatasetOption,
    runs: RunsOption = Path("runs"),
    source: Annotated[SourceOfTable, typer.Option(help="Our runs, or the published table.")] = SourceOfTable.runs,
    format_: Annotated[Format, typer.Option("--format", help="Of the table.")] = Format.markdown,
    output: Annotated[Path | None, typer.Option(help="File to write instead of standard output.")] = None,
    publish: Annotated[Path | None, typer.Option(help="Folder that gets the table and its run records.")] = None,
) -> None:
    """Print the table of a dataset from the runs on disk or from the paper."""
    from hierbench.files import write_text
    from hierbench.leaderboard.board import board_from_paper, board_from_runs
    from hierbench.leaderboard.publish import publish_board
    from hierbench.leaderboard.render import FORMATS
    from hierbench.store import Store

    if publish is not None and source == "paper":
        raise UserError("--publish is for runs; the paper's tables are published")
    board = board_from_paper(dataset) if source == "paper" else board_from_runs(dataset, Store(runs))
    if publish is not None:
        print(f"wrote {publish_board(board, Store(runs), publish)}, its JSON and the records of its runs")
        return
    text = FORMATS[format_.value](board)
    if output is None:
        print(text, end="")
        return
    target = output.resolve()
    try:
        if target.exists() and not target.is_file():
            target.write_text(text, encoding="utf-8")  # a device or a pipe is written to, not replaced
        else:
            write_text(target, text)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UserError(f"--output {output}: {reason}") from None


@methods_app.command("list")
def methods_list() -> None:
    """List the installed methods."""
    from hierbench.discovery import Broken, find_all

    for found in find_all():
        if isinstance(found, Broken):
            print(f"{found.name:16} BROKEN: {found.reason}")
        else:
            print(f"{found.name:16} {found.cls.title:16} {','.join(found.cls.types):16} {found.cls.source}")


@methods_app.command("check")
def methods_check(method: Annotated[str, typer.Argument(help="Name, or path of a file.")]) -> None:
    """Check that a method keeps the contract."""
    from hierbench.contract import check_method
    from hierbench.discovery import find_method

    found = find_method(method)
    failures = 0
    for name, problem in check_method(found.cls):
        failures += bool(problem)
        print(f"{'FAILED' if problem else 'ok':7} {name}{': ' + problem if problem else ''}")
    print(f"{found.name}: {f'{failures} checks failed' if failures else 'all checks passed'}")
    raise typer.Exit(1 if failures else 0)


@methods_app.command("new")
def methods_new(
    name: Annotated[str, typer.Argument(help="Name of the method.")],
    folder: Annotated[Path, typer.Option(help="Where the file goes.")] = Path(),
) -> None:
    """Write a commented template NAME.py that already passes `methods check`."""
    from hierbench.discovery import new_method

    path = new_method(name, folder)
    shown = path if path.is_absolute() else f"./{path}"
    print(f"wrote {path}; next: hierbench methods check {shown}")


@data_app.command("list")
def data_list(data_dir: DataOption = Path("data")) -> None:
    """List the datasets and what is prepared of them."""
    from hierbench.data.prepared import find
    from hierbench.recipe import load_recipe, recipe_names

    for name in recipe_names():
        there = find(name, data_dir)
        sizes = "" if there is None else ", ".join(f"{split} {n:,}" for split, n in there.meta["splits"].items())
        print(f"{name:16} {load_recipe(name).title:28} {f'prepared: {sizes}' if there else 'not prepared'}")


@data_app.command("prepare")
def data_prepare(
    dataset: Annotated[str, typer.Argument(help="Name of the dataset.")],
    source: Annotated[Path | None, typer.Option(help="Your copy; by default it is downloaded where allowed.")] = None,
    data_dir: DataOption = Path("data"),
    force: Annotated[bool, typer.Option("--force", help="Prepare again what is prepared.")] = False,
) -> None:
    """Decode and resize a dataset once, into uint8 arrays."""
    from hierbench.compare import prepare_with_progress

    prepared = prepare_with_progress(dataset, data_dir, source, force=force)
    sizes = ", ".join(f"{split} {n:,}" for split, n in prepared.meta["splits"].items())
    print(f"{dataset}: {sizes}; digest {prepared.digest[:12]}; in {prepared.folder}")


@data_app.command("verify")
def data_verify(
    dataset: Annotated[str, typer.Argument(help="Name of the dataset.")], data_dir: DataOption = Path("data")
) -> None:
    """Compare a prepared dataset with its digest."""
    from hierbench.data.prepared import verify

    print(f"{dataset}: {verify(dataset, data_dir).digest[:12]} as prepared")


@app.command()
def env() -> None:
    """Print what to paste into a bug report."""
    import torch

    from hierbench.train import environment

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
        _end(" ".join(text.split()), 2)
    except (KeyboardInterrupt, typer.Abort):
        _end("interrupted; what is finished is kept, the same command goes on from there", 130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader has left: say no more
        code = 0
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        _end(f"{where}{error.strerror or error}", 1)
    raise SystemExit(code if isinstance(code, int) else 0)


def _end(line: str, code: int) -> None:
    print(f"hierbench: error: {line}", file=sys.stderr)
    raise SystemExit(code)
