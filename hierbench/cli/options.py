"""Options that several commands share, and how a result is written. Nothing heavy is imported here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hierbench.utils.errors import UserError

if TYPE_CHECKING:
    from hierbench.config.options import Options


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


class Executor(StrEnum):
    """What trains."""

    local = "local"
    ray = "ray"


OverridesOption = Annotated[
    list[str] | None, typer.Option("--set", help="Override a recipe key, as in train.epochs=3; may be repeated.")
]
DeviceOption = Annotated[Device, typer.Option("--device", help="Where to train.")]


def jobs_of(text: str) -> int | None:
    """Return the number of --jobs, None for "auto"."""
    if text == "auto":
        return None
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise typer.BadParameter(f"must be auto or at least 1, got {text}")
    return int(text)


JobsOption = Annotated[
    int | None,
    typer.Option("--jobs", parser=jobs_of, metavar="N|auto", help="Jobs side by side; auto: one per core or GPU."),
]
DevicesOption = Annotated[int, typer.Option("--devices", min=1, help="GPUs that share one job; on a CPU, processes.")]
JobsPerGpuOption = Annotated[int, typer.Option("--jobs-per-gpu", min=1, help="Small jobs that share one GPU.")]
MlflowOption = Annotated[
    str | None,
    typer.Option("--mlflow", help="MLflow tracking URI, or off; by default a SQLite file in the runs folder."),
]
ExecutorOption = Annotated[Executor, typer.Option("--executor", help="Train on this machine, or on a Ray cluster.")]
AddressOption = Annotated[
    str | None,
    typer.Option("--address", help="Of the Ray cluster; by default RAY_ADDRESS, or a cluster of this machine alone."),
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Print the plan and stop.")]


def check_executor(executor: Executor, address: str | None, jobs: int | None) -> None:
    """Raise a UserError for options that do not go together."""
    if executor == "local" and address is not None:
        raise UserError("--address is for --executor ray")
    if executor == "ray" and jobs is not None:
        raise UserError("--jobs is for this machine; a Ray cluster runs as many side by side as it has room for")


def options_of(arguments: Mapping[str, Any], **more: Any) -> Options:
    """Return the options of a command that trains.

    Args:
        arguments: {name: value} of the command, its `locals()` at the start; what is no field of `Options` is left out.
        more: fields that are no arguments of the command.
    """
    from hierbench.config.options import Options

    values = {name: getattr(value, "value", value) for name, value in arguments.items()} | more
    values["overrides"] = values["overrides"] or []
    return Options(**{field.name: values[field.name] for field in fields(Options) if field.name in values})


def write_result(text: str, output: Path | None, *, follow: bool = True) -> None:
    """Print a result, or write it to the file of --output; `follow` says whether that may be a link."""
    from hierbench.utils.files import write_text

    if output is None:
        print(text, end="", flush=True)
        return
    target = output.resolve() if follow else output
    try:
        if follow and target.exists() and not target.is_file():
            target.write_text(text, encoding="utf-8")  # a device or a pipe is written to, not replaced
        else:
            write_text(target, text)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UserError(f"--output {output}: {reason}") from None
