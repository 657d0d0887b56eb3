"""`hierbench score`."""

import shlex
from pathlib import Path
from typing import Annotated, Literal

import typer

from hierbench.cli.options import Format, MetricsOption, write_result
from hierbench.config.names import complete_dataset
from hierbench.config.options import DataOption, RunsOption
from hierbench.utils.errors import UserError


def score(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Predictions, .npz .npy .csv .parquet .json; one per seed.")
    ],
    dataset: Annotated[
        str | None,
        typer.Option(
            help="Compare with its test images, and add a row to its leaderboard.", autocompletion=complete_dataset
        ),
    ] = None,
    tree: Annotated[
        str | None, typer.Option(help="File of a tree, or the name of a shipped one; nothing is recorded.")
    ] = None,
    targets: Annotated[
        Path | None, typer.Option(help="File of the targets; by default those of the predictions or the dataset.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Of the row; by default what the files' names share.")] = None,
    distance: Annotated[
        Literal["height", "depth"] | None, typer.Option(help="For --tree; by default height; see hierbench.Hierarchy.")
    ] = None,
    resamples: Annotated[
        int, typer.Option(min=0, max=1_000_000, help="Bootstrap resamples of one file, 100 or more; 0: no interval.")
    ] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="Of the resamples.")] = 0,
    runs: RunsOption = Path("runs"),
    data_dir: DataOption = Path("data"),
    metrics: MetricsOption = None,
    format_: Annotated[Format, typer.Option("--format", help="Format of the metrics.")] = "markdown",
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
    output: Annotated[Path | None, typer.Option(help="Write to this file instead of standard output.")] = None,
) -> None:
    """Score predictions that were made elsewhere: metrics with intervals, and a row in a dataset's leaderboard."""
    if as_json and format_ not in ("markdown", "json"):
        raise UserError(f"--json does not go with --format {format_}")
    from hierbench.experiments.scoring.command import Request, score_files
    from hierbench.experiments.scoring.report import report_table
    from hierbench.leaderboard.columns import asked_columns
    from hierbench.leaderboard.formats import render
    from hierbench.utils.console import say

    columns = asked_columns(metrics)
    request = Request(files, dataset, tree, targets, name, distance, resamples, seed, runs, data_dir, columns)
    report = score_files(request)
    write_result(render(report_table(report), "json" if as_json else format_), output)
    if report.runs:
        folders = " ".join(f"{runs}/{run_id[:12]}*/" for run_id in report.runs)
        where = "" if runs == Path("runs") else f" --runs {shlex.quote(str(runs))}"
        say(f"recorded in {folders}; the row is in: hierbench leaderboard --dataset {dataset}{where}")
