"""The options of commands that train, each defined once with its name, type, default and help."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import typer

from hierbench.config.completion import complete_dataset, complete_methods, complete_types
from hierbench.utils.errors import UserError


def parse_jobs(text: str) -> int | None:
    """Parse --jobs; None stands for "auto"."""
    if text == "auto":
        return None
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise typer.BadParameter(f"must be auto or at least 1, got {text}")
    return int(text)


Device = Literal["auto", "cpu", "cuda", "mps"]
DatasetOption = Annotated[
    str,
    typer.Option(
        "--dataset",
        help="A name of hierbench data list, or your dataset's file, ./birds.toml.",
        autocompletion=complete_dataset,
    ),
]
ProtocolOption = Annotated[
    Literal["paper", "authors"], typer.Option("--protocol", help="The paper's text, or the authors' code.")
]
WeightsOption = Annotated[Path | None, typer.Option("--weights", help="A file of the backbone's initial weights.")]
RunsOption = Annotated[Path, typer.Option("--runs", help="Folder of all runs.")]
DataOption = Annotated[Path, typer.Option("--data-dir", help="Folder of downloads and prepared datasets.")]
DeviceOption = Annotated[Device, typer.Option("--device", help="Device to train on.")]
DevicesOption = Annotated[int, typer.Option("--devices", min=1, help="GPUs that share one job; on a CPU, processes.")]
ProtocolOfRuns = Annotated[
    Literal["paper", "authors"] | None,
    "Protocol of the runs; by default that of the last comparison. Protocols are never mixed.",
]
RequestOption = Annotated[
    str | None,
    typer.Option(
        "--request", metavar="ID", help="Beginning of a request's id: its settings, in place of the last comparison's."
    ),
]


def folder_options(runs: Path | None = None, data_dir: Path | None = None) -> str:
    """Return " --runs X --data-dir Y" of the folders that are not the default: a printed command repeats them."""
    folders = (("--runs", runs, "runs"), ("--data-dir", data_dir, "data"))
    return "".join(
        f" {name} {shlex.quote(str(path))}" for name, path, default in folders if path not in (None, Path(default))
    )


@dataclass(frozen=True)
class RunSelection:
    """Where finished runs and their data are, and which runs are meant."""

    runs: RunsOption = Path("runs")
    data_dir: DataOption = Path("data")
    protocol: ProtocolOfRuns = None
    request: RequestOption = None


@dataclass(frozen=True)
class Options:
    """The options of a command that trains; `hierbench.cli.command.command` adds them to a command."""

    dataset: DatasetOption
    methods: Annotated[
        str,
        typer.Option(
            "--methods",
            help="all, paper, or names and paths separated by commas.",
            autocompletion=complete_methods,
        ),
    ] = "all"
    types: Annotated[
        str, typer.Option("--types", help="Feature extractors, separated by commas.", autocompletion=complete_types)
    ] = "type-I,type-II"
    seeds: Annotated[int | None, "Number of seeds; by default the recipe's."] = None
    overrides: Annotated[
        list[str],
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Override a recipe key, as in train.epochs=3; may be repeated."
        ),
    ] = field(default_factory=list)
    protocol: ProtocolOption = "paper"
    weights: WeightsOption = None
    source: Annotated[Path | None, "Your copy of the dataset, read if it is not prepared yet."] = None
    runs: RunsOption = Path("runs")
    data_dir: DataOption = Path("data")
    device: DeviceOption = "auto"
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", parser=parse_jobs, metavar="N|auto", help="Parallel jobs; auto: one per core or GPU."),
    ] = None
    jobs_per_gpu: Annotated[int, typer.Option("--jobs-per-gpu", min=1, help="Small jobs that share one GPU.")] = 1
    devices: DevicesOption = 1
    mlflow: Annotated[str | None, "MLflow tracking URI, or off; by default a SQLite file in the runs folder."] = None
    dry_run: Annotated[bool, "Print the plan and stop."] = False
    plan_only: Annotated[bool, "Print a command for every job, and stop."] = False

    def __post_init__(self) -> None:
        """Raise a UserError for options that conflict."""
        if self.plan_only and self.dry_run:
            raise UserError("--dry-run writes nothing and --plan-only writes the plan; choose one")
        if self.plan_only and (self.jobs is not None or self.jobs_per_gpu > 1):
            raise UserError("--plan-only starts nothing; it excludes --jobs and --jobs-per-gpu")
