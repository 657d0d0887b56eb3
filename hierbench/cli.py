"""The command line. Heavy imports stay inside the commands, so that help answers at once."""

from __future__ import annotations

import io
import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hierbench.errors import UserError

if TYPE_CHECKING:
    from hierbench.recipe import Protocol

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


class ProtocolName(StrEnum):
    """Where the paper and the authors' code differ: which one to follow."""

    paper = "paper"
    authors = "authors"


RunsOption = Annotated[Path, typer.Option("--runs", help="Folder of all runs.")]
DataOption = Annotated[Path, typer.Option("--data-dir", help="Folder of downloads and prepared datasets.")]
ProtocolOption = Annotated[ProtocolName, typer.Option("--protocol", help="The paper's text, or the authors' code.")]
WeightsOption = Annotated[Path | None, typer.Option("--weights", help="Your copy of the recipe's weights.")]
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
    both = "both"


class SourceOfAblation(StrEnum):
    """Of the ablation table."""

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
    protocol: ProtocolOption = ProtocolName.paper,
    weights: WeightsOption = None,
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
    from hierbench.compare import compare
    from hierbench.session import Options

    options = Options(
        methods=methods,
        dataset=dataset,
        types=types,
        seeds=seeds,
        overrides=overrides or [],
        protocol=protocol.value,
        weights=weights,
        runs=runs,
        data_dir=data_dir,
        device=device.value,
        workers=jobs,
        mlflow=mlflow,
        dry_run=dry_run,
        as_json=as_json,
    )
    raise typer.Exit(compare(options))


@app.command()
def leaderboard(
    dataset: DatasetOption,
    runs: RunsOption = Path("runs"),
    source: Annotated[SourceOfTable, typer.Option(help="Our runs, the published table, or both side by side.")] = (
        SourceOfTable.runs
    ),
    protocol: Annotated[
        ProtocolName | None, typer.Option(help="Of the runs; by default that of the newest, two are never mixed.")
    ] = None,
    format_: Annotated[Format, typer.Option("--format", help="Of the table.")] = Format.markdown,
    output: Annotated[Path | None, typer.Option(help="File to write instead of standard output.")] = None,
    publish: Annotated[Path | None, typer.Option(help="Folder that gets the table and its run records.")] = None,
) -> None:
    """Print the table of a dataset from the runs on disk, from the paper, or a ledger of the two."""
    from hierbench.leaderboard import ledger, render
    from hierbench.leaderboard.board import board_from_paper, board_from_runs
    from hierbench.leaderboard.publish import publish_board
    from hierbench.store import Store

    if publish is not None and source != "runs":
        raise UserError("--publish is for runs; the paper's tables are published")
    if protocol is not None and source == "paper":
        raise UserError("--protocol is for runs; the paper's tables are as printed")
    which: Protocol | None = None if protocol is None else protocol.value
    if source == "both":
        return _write_result(
            ledger.FORMATS[format_.value](ledger.ledger_from_runs(dataset, Store(runs), which)), output
        )
    board = board_from_paper(dataset) if source == "paper" else board_from_runs(dataset, Store(runs), protocol=which)
    if publish is not None:
        print(f"wrote {publish_board(board, Store(runs), publish)}, its JSON and the records of its runs")
        return
    _write_result(render.FORMATS[format_.value](board), output)


@app.command()
def ablate(
    dataset: Annotated[str, typer.Option(help="See: hierbench data list; all with --source paper.")],
    seeds: Annotated[int | None, typer.Option(min=1, help="How many seeds; by default the recipe's number.")] = None,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", help="Override a recipe key, as in train.epochs=3; may be repeated.")
    ] = None,
    protocol: ProtocolOption = ProtocolName.paper,
    weights: WeightsOption = None,
    runs: RunsOption = Path("runs"),
    data_dir: DataOption = Path("data"),
    device: Annotated[Device, typer.Option(help="Where to train.")] = Device.auto,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Jobs side by side; by default one per core on a CPU.")
    ] = None,
    mlflow: Annotated[
        str | None, typer.Option(help="MLflow tracking URI, or off; by default a SQLite file in the runs folder.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and stop.")] = False,
    source: Annotated[SourceOfAblation, typer.Option(help="Our runs, or the published table.")] = SourceOfAblation.runs,
    format_: Annotated[Format, typer.Option("--format", help="Of the table.")] = Format.markdown,
    output: Annotated[Path | None, typer.Option(help="File to write instead of standard output.")] = None,
) -> None:
    """Train what is missing of HAFrame's ablation, and print its table."""
    from hierbench.leaderboard.ablation import FORMATS, ablation_from_paper

    render = FORMATS[format_.value]
    if source == "paper":
        if any((seeds, overrides, protocol == "authors", weights, jobs, mlflow, dry_run)):
            raise UserError("--source paper prints what is published; options of training do not go with it")
        return _write_result(render(ablation_from_paper(dataset)), output)
    if dataset == "all":
        raise UserError("--dataset all is for --source paper; runs are of one dataset")
    if output is not None and not output.resolve().parent.is_dir():
        raise UserError(f"--output {output}: no such folder")  # better now than after the training
    from hierbench.ablate import ablate
    from hierbench.session import Options

    options = Options(
        methods="ce,haframe",
        dataset=dataset,
        types="type-I,type-II",
        seeds=seeds,
        overrides=overrides or [],
        protocol=protocol.value,
        weights=weights,
        runs=runs,
        data_dir=data_dir,
        device=device.value,
        workers=jobs,
        mlflow=mlflow,
        dry_run=dry_run,
        as_json=format_ == "json",
    )
    raise typer.Exit(ablate(options, render, lambda text: _write_result(text, output)))


def _write_result(text: str, output: Path | None) -> None:
    """Print a result, or write it to the file of --output."""
    from hierbench.files import write_text

    if output is None:
        print(text, end="", flush=True)
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
    from hierbench.data.prepared import find, variant_name
    from hierbench.recipe import PROTOCOLS, load_recipe, recipe_names

    for name in recipe_names():
        recipes = [load_recipe(name, protocol=protocol) for protocol in PROTOCOLS]
        for variant in dict.fromkeys(variant_name(name, recipe.data.jpeg_quality) for recipe in recipes):
            there = find(variant, data_dir)
            sizes = "" if there is None else ", ".join(f"{split} {n:,}" for split, n in there.meta["splits"].items())
            print(f"{variant:16} {recipes[0].title:28} {f'prepared: {sizes}' if there else 'not prepared'}")


@data_app.command("prepare")
def data_prepare(
    dataset: Annotated[str, typer.Argument(help="Name of the dataset.")],
    source: Annotated[Path | None, typer.Option(help="Your copy; by default it is downloaded where allowed.")] = None,
    data_dir: DataOption = Path("data"),
    protocol: ProtocolOption = ProtocolName.paper,
    offline: Annotated[
        Path | None, typer.Option(help="Folder with the tree and split lists, not fetched then.")
    ] = None,
    allow_missing: Annotated[bool, typer.Option("--allow-missing", help="Prepare without missing images.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Prepare again what is prepared.")] = False,
) -> None:
    """Decode and resize a dataset once, into uint8 arrays."""
    from hierbench.recipe import load_recipe
    from hierbench.session import prepare_with_progress, say_notes

    recipe = load_recipe(dataset, protocol=protocol.value)
    prepared = prepare_with_progress(
        dataset,
        data_dir,
        source,
        force=force,
        offline=offline,
        allow_missing=allow_missing,
        jpeg_quality=recipe.data.jpeg_quality,
    )
    say_notes(prepared)
    sizes = ", ".join(f"{split} {n:,}" for split, n in prepared.meta["splits"].items())
    tree = prepared.hierarchy("height")
    levels = ", ".join(map(str, tree.level_sizes))
    print(f"{dataset}: {sizes}; {tree.num_classes} classes, height {tree.height}, levels {levels}")
    print(f"digest {prepared.digest[:12]}; in {prepared.folder}")


@data_app.command("verify")
def data_verify(
    dataset: Annotated[str, typer.Argument(help="Name of the dataset, as `data list` has it.")],
    data_dir: DataOption = Path("data"),
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
