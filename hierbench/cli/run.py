"""`hierbench run`, `hierbench ablate` and `hierbench job`."""

from dataclasses import fields
from pathlib import Path
from typing import Annotated

import typer

from hierbench.cli.command import command
from hierbench.cli.shared_options import MetricsOption, NumbersOption, dataset_option
from hierbench.config.options import DataOption, DeviceOption, DevicesOption, Options, RunsOption, WeightsOption
from hierbench.leaderboard.table import CommandOutput, Table
from hierbench.utils.errors import UserError


@command("run --dataset shapes --methods ce,crm,haframe --seeds 2", table="markdown")
def run(
    options: Options,
    tuned: Annotated[bool, "Use the hyperparameters that hierbench tune found."] = False,
    metrics: MetricsOption = None,
) -> CommandOutput:
    """Train the missing runs, and print the leaderboard."""
    from hierbench.leaderboard.columns import requested_columns
    from hierbench.studies.comparison import compare

    return compare(options, tuned=tuned, columns=requested_columns(metrics)).shown


@command(
    "ablate --dataset fgvc --numbers paper",
    table="markdown",
    methods="ce,haframe",
    types="type-I,type-II",
    protocol="paper",
    source=None,
    jobs_per_gpu=1,
    devices=1,
    plan_only=False,
)
def ablate(
    options: Options,
    dataset: Annotated[str, dataset_option("See: hierbench data list. --numbers paper takes all.")],
    seeds: Annotated[int | None, typer.Option(min=1, help="Number of seeds; by default the recipe's.")] = None,
    numbers: NumbersOption = "runs",
) -> Table | CommandOutput:
    """Train HAFrame's ablation study, and print its table."""
    from hierbench.leaderboard.ablation_table import ablation_from_paper, ablation_table

    if numbers == "paper":
        harmless = {"dataset", "methods", "types", "runs", "data_dir", "device"}
        plain = Options(dataset)
        if any(getattr(options, f.name) != getattr(plain, f.name) for f in fields(Options) if f.name not in harmless):
            raise UserError("--numbers paper prints the published table and takes no options of training")
        return ablation_table(ablation_from_paper(dataset))
    if dataset == "all":
        raise UserError("--dataset all is for --numbers paper; runs are of one dataset")
    from hierbench.studies.ablation import ablate

    return ablate(options)


@command("job ID")
def job(
    id_: Annotated[str, typer.Argument(metavar="ID", help="Id of a planned job, or the beginning of it.")],
    runs: RunsOption = Path("runs"),
    data_dir: DataOption = Path("data"),
    device: DeviceOption = "auto",
    devices: DevicesOption = 1,
    method: Annotated[list[Path] | None, "File of a method that is not installed; may be repeated."] = None,
    weights: WeightsOption = None,
    threads: Annotated[int | None, typer.Option(min=1, help="CPU threads; by default 1 on a CPU.")] = None,
) -> int:
    """Run one job that hierbench run --plan-only has planned."""
    from hierbench.execution.resources import Setting, choose_device, side_by_side
    from hierbench.execution.single_job import run_one

    chosen = choose_device(device)
    side_by_side(1, chosen, devices)  # raises if there are not as many
    if threads is None and chosen == "cpu":
        threads = 1  # the same on every machine, because the numbers depend on it
    setting = Setting(runs.resolve(), data_dir.resolve(), chosen, threads=threads, devices=devices, weights=weights)
    return run_one(id_, method or [], setting)
