"""`hierbench run`, `hierbench ablate` and `hierbench job`."""

from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated, Literal

import typer

from hierbench.cli.options import Format, MetricsOption, trains, write_result
from hierbench.config.names import complete_dataset
from hierbench.config.options import DataOption, DeviceOption, DevicesOption, Options, RunsOption, WeightsOption
from hierbench.utils.errors import UserError


@trains()
def run(
    options: Options,
    tuned: Annotated[bool, typer.Option("--tuned", help="Use the hyperparameters that hierbench tune found.")] = False,
    tuned_file: Annotated[Path | None, typer.Option(help="File with them, if not in the runs folder.")] = None,
    metrics: MetricsOption = None,
    until_separated: Annotated[
        str | None,
        typer.Option(
            "--until-separated", metavar="A,B", help="Further seeds for two rows until a test separates them."
        ),
    ] = None,
    max_seeds: Annotated[int | None, typer.Option("--max-seeds", help="Seeds after which that gives up.")] = None,
    separation_metric: Annotated[
        str | None, typer.Option("--separation-metric", help="Metric of that test; by default mistake_severity.")
    ] = None,
) -> int:
    """Train and re-rank what is missing, and print the leaderboard."""
    from hierbench.experiments.interface.running import run_options
    from hierbench.experiments.publishing import show_board
    from hierbench.leaderboard.columns import asked_columns
    from hierbench.utils.console import say

    columns, until = asked_columns(metrics), None
    if any(option is not None for option in (until_separated, max_seeds, separation_metric)):
        from hierbench.experiments.separation.record import asked_separation

        until = asked_separation(until_separated, max_seeds, separation_metric)
    ended = run_options(options, tuned=tuned or tuned_file is not None, file=tuned_file, columns=columns, until=until)
    if ended.published is not None:
        show_board(ended.published, options, ended.more)
    for line in ended.failures:
        say(line)
    return ended.code


@trains(methods="ce,haframe", types="type-I,type-II", plan_only=False, as_json=False, source=None)  # has its own
def ablate(
    options: Options,
    dataset: Annotated[
        str, typer.Option(help="See: hierbench data list. --source paper takes all.", autocompletion=complete_dataset)
    ],
    seeds: Annotated[int | None, typer.Option(min=1, help="Number of seeds; by default the recipe's.")] = None,
    source: Annotated[Literal["runs", "paper"], typer.Option(help="Our runs, or the published table.")] = "runs",
    format_: Annotated[Format, typer.Option("--format", help="Format of the table.")] = "markdown",
    output: Annotated[Path | None, typer.Option(help="Write to this file instead of standard output.")] = None,
) -> int:
    """Train what is missing of HAFrame's ablation study, and print its table."""
    from hierbench.leaderboard.ablation import ablation_from_paper, ablation_table
    from hierbench.leaderboard.formats import render

    if source == "paper":
        harmless = {"dataset", "methods", "types", "runs", "data_dir", "device"}
        plain = Options(dataset)
        if any(getattr(options, f.name) != getattr(plain, f.name) for f in fields(Options) if f.name not in harmless):
            raise UserError("--source paper prints the published table and takes no options of training")
        write_result(render(ablation_table(ablation_from_paper(dataset)), format_), output)
        return 0
    if dataset == "all":
        raise UserError("--dataset all is for --source paper; runs are of one dataset")
    if output is not None and not output.resolve().parent.is_dir():
        raise UserError(f"--output {output}: no such folder")  # before the training, not after it
    from hierbench.experiments.ablation import ablate

    return ablate(
        replace(options, as_json=format_ == "json"), lambda table: write_result(render(table, format_), output)
    )


def job(
    id_: Annotated[str, typer.Argument(metavar="ID", help="Id of a planned job, or the beginning of it.")],
    runs: RunsOption = Path("runs"),
    data_dir: DataOption = Path("data"),
    device: DeviceOption = "auto",
    devices: DevicesOption = 1,
    method: Annotated[
        list[Path] | None,
        typer.Option(help="File of the method, if it is not installed; again for files of methods that it re-ranks."),
    ] = None,
    weights: WeightsOption = None,
    threads: Annotated[int | None, typer.Option(min=1, help="CPU threads; by default 1 on a CPU.")] = None,
) -> None:
    """Run one job that hierbench run --plan-only has planned, under any scheduler."""
    from hierbench.execution.standalone import run_one
    from hierbench.planning.resources import Setting, choose_device, side_by_side

    chosen = choose_device(device)
    side_by_side(1, chosen, devices)  # raises if there are not as many
    if threads is None and chosen == "cpu":
        threads = 1  # the same on every machine, because the numbers depend on it
    setting = Setting(runs.resolve(), data_dir.resolve(), chosen, threads=threads, devices=devices, weights=weights)
    raise typer.Exit(run_one(id_, method or [], setting))
