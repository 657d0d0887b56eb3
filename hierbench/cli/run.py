"""`hierbench run` and `hierbench ablate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hierbench.cli.main import options as shared
from hierbench.cli.options import SourceOfAblation
from hierbench.utils.errors import UserError


def run(
    dataset: shared.DatasetOption,
    methods: Annotated[str, typer.Option(help="all, or names and paths separated by commas.")] = "all",
    types: Annotated[str, typer.Option(help="Feature extractors, separated by commas.")] = "type-I,type-II",
    seeds: Annotated[int | None, typer.Option(help="How many seeds; by default the recipe's number.")] = None,
    overrides: shared.OverridesOption = None,
    protocol: shared.ProtocolOption = shared.ProtocolName.paper,
    weights: shared.WeightsOption = None,
    runs: shared.RunsOption = Path("runs"),
    data_dir: shared.DataOption = Path("data"),
    device: shared.DeviceOption = shared.Device.auto,
    jobs: shared.JobsOption = None,
    jobs_per_gpu: shared.JobsPerGpuOption = 1,
    devices: shared.DevicesOption = 1,
    mlflow: shared.MlflowOption = None,
    tuned: Annotated[bool, typer.Option("--tuned", help="Use what hierbench tune found.")] = False,
    tuned_file: Annotated[Path | None, typer.Option(help="Where it was written, if not in the runs folder.")] = None,
    executor: shared.ExecutorOption = shared.Executor.local,
    address: shared.AddressOption = None,
    dry_run: shared.DryRunOption = False,
    plan_only: Annotated[bool, typer.Option("--plan-only", help="Print a command for every job, and stop.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")] = False,
) -> None:
    """Train what is missing, re-rank, and print the leaderboard."""
    arguments = locals()
    shared.check_executor(executor, address, jobs)
    if plan_only and dry_run:
        raise UserError("--dry-run writes nothing and --plan-only writes the plan; choose one")
    if plan_only and (executor == "ray" or jobs is not None or jobs_per_gpu > 1):
        raise UserError("--plan-only starts nothing; --executor, --jobs and --jobs-per-gpu do not go with it")
    from hierbench.experiments.plan_cache import again

    options = shared.options_of(arguments)
    if not tuned and tuned_file is None and again(options):
        return
    from hierbench.experiments.comparison import compare

    raise typer.Exit(compare(options, tuned=tuned or tuned_file is not None, file=tuned_file))


def ablate(
    dataset: Annotated[str, typer.Option(help="See: hierbench data list; all with --source paper.")],
    seeds: Annotated[int | None, typer.Option(min=1, help="How many seeds; by default the recipe's number.")] = None,
    overrides: shared.OverridesOption = None,
    protocol: shared.ProtocolOption = shared.ProtocolName.paper,
    weights: shared.WeightsOption = None,
    runs: shared.RunsOption = Path("runs"),
    data_dir: shared.DataOption = Path("data"),
    device: shared.DeviceOption = shared.Device.auto,
    jobs: shared.JobsOption = None,
    jobs_per_gpu: shared.JobsPerGpuOption = 1,
    devices: shared.DevicesOption = 1,
    mlflow: shared.MlflowOption = None,
    executor: shared.ExecutorOption = shared.Executor.local,
    address: shared.AddressOption = None,
    dry_run: shared.DryRunOption = False,
    source: Annotated[SourceOfAblation, typer.Option(help="Our runs, or the published table.")] = SourceOfAblation.runs,
    format_: Annotated[shared.Format, typer.Option("--format", help="Of the table.")] = shared.Format.markdown,
    output: Annotated[Path | None, typer.Option(help="File to write instead of standard output.")] = None,
) -> None:
    """Train what is missing of HAFrame's ablation, and print its table."""
    arguments = locals()
    from hierbench.leaderboard.ablation import FORMATS, ablation_from_paper

    render = FORMATS[format_.value]
    if source == "paper":
        several = devices > 1 or jobs_per_gpu > 1 or executor == "ray" or address
        if any((seeds, overrides, protocol == "authors", weights, jobs, several, mlflow, dry_run)):
            raise UserError("--source paper prints what is published; options of training do not go with it")
        return shared.write_result(render(ablation_from_paper(dataset)), output)
    if dataset == "all":
        raise UserError("--dataset all is for --source paper; runs are of one dataset")
    if output is not None and not output.resolve().parent.is_dir():
        raise UserError(f"--output {output}: no such folder")  # better now than after the training
    shared.check_executor(executor, address, jobs)
    from hierbench.experiments.ablation import ablate

    options = shared.options_of(arguments, methods="ce,haframe", types="type-I,type-II", as_json=format_ == "json")
    raise typer.Exit(ablate(options, render, lambda text: shared.write_result(text, output)))
