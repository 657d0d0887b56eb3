"""`hierbench run`, `hierbench ablate` and `hierbench job`."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated, Literal

import typer

from hierbench.cli.options import Format, trains, write_result
from hierbench.config.options import DataOption, DeviceOption, DevicesOption, Options, RunsOption, WeightsOption
from hierbench.utils.errors import UserError


@trains()
def run(
    options: Options,
    tuned: Annotated[bool, typer.Option("--tuned", help="Use what hierbench tune found.")] = False,
    tuned_file: Annotated[Path | None, typer.Option(help="Where it was written, if not in the runs folder.")] = None,
) -> int:
    """Train what is missing, re-rank, and print the leaderboard."""
    from hierbench.experiments.plan_cache import again

    if not tuned and tuned_file is None and again(options):
        return 0
    from hierbench.experiments.comparison import compare

    return compare(options, tuned=tuned or tuned_file is not None, file=tuned_file)


@trains(methods="ce,haframe", types="type-I,type-II", plan_only=False, as_json=False)
def ablate(
    options: Options,
    dataset: Annotated[str, typer.Option(help="See: hierbench data list; all with --source paper.")],
    seeds: Annotated[int | None, typer.Option(min=1, help="How many seeds; by default the recipe's number.")] = None,
    source: Annotated[Literal["runs", "paper"], typer.Option(help="Our runs, or the published table.")] = "runs",
    format_: Annotated[Format, typer.Option("--format", help="Of the table.")] = "markdown",
    output: Annotated[Path | None, typer.Option(help="File to write instead of standard output.")] = None,
) -> int:
    """Train what is missing of HAFrame's ablation, and print its table."""
    from hierbench.leaderboard.ablation import FORMATS, ablation_from_paper

    render = FORMATS[format_]
    if source == "paper":
        harmless = {"dataset", "methods", "types", "runs", "data_dir", "device"}
        plain = Options(dataset)
        if any(getattr(options, f.name) != getattr(plain, f.name) for f in fields(Options) if f.name not in harmless):
            raise UserError("--source paper prints what is published; options of training do not go with it")
        write_result(render(ablation_from_paper(dataset)), output)
        return 0
    if dataset == "all":
        raise UserError("--dataset all is for --source paper; runs are of one dataset")
    if output is not None and not output.resolve().parent.is_dir():
        raise UserError(f"--output {output}: no such folder")  # better now than after the training
    from hierbench.experiments.ablation import ablate

    return ablate(replace(options, as_json=format_ == "json"), render, lambda text: write_result(text, output))


def job(
    id_: Annotated[str, typer.Argument(metavar="ID", help="Of a planned job, or the beginning of its id.")],
    runs: RunsOption = Path("runs"),
    data_dir: DataOption = Path("data"),
    device: DeviceOption = "auto",
    devices: DevicesOption = 1,
    method: Annotated[Path | None, typer.Option(help="File of a method that is not installed.")] = None,
    weights: WeightsOption = None,
    threads: Annotated[int | None, typer.Option(min=1, help="CPU threads; by default 1 on a CPU.")] = None,
) -> None:
    """Run one job of hierbench run --plan-only, under any scheduler."""
    from hierbench.execution.standalone import run_one
    from hierbench.planning.resources import Setting, choose_device, side_by_side

    chosen = choose_device(device)
    side_by_side(1, chosen, devices)  # refuses more devices than there are
    if threads is None and chosen == "cpu":
        threads = 1  # whatever machine it comes to: the numbers depend on it
    setting = Setting(runs.resolve(), data_dir.resolve(), chosen, threads=threads, devices=devices, weights=weights)
    raise typer.Exit(run_one(id_, method, setting))
