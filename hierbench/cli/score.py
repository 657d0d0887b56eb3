"""`hierbench score`."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from hierbench.cli.command import command
from hierbench.cli.shared_options import (
    PLAIN_TREES,
    IgnoreOption,
    MetricsOption,
    OrderOption,
    ScoresOption,
    SkipUnlabelledOption,
    UseOption,
    dataset_option,
    plain_trees,
    split_names,
)
from hierbench.config.options import DataOption, RunsOption, folder_options
from hierbench.hierarchy.tree_options import TreeOptions
from hierbench.leaderboard.table import CommandOutput
from hierbench.utils.errors import UserError


@command("score predictions.npz --tree cifar100", table="markdown", **PLAIN_TREES)
def score(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Predictions, .npz .npy .csv .parquet .json; one per seed.")
    ],
    dataset: Annotated[
        str | None, dataset_option("Compare with its test images, and add a row to its leaderboard.")
    ] = None,
    tree: Annotated[str | None, "File of a tree, or the name of a shipped one; nothing is recorded."] = None,
    *,
    options: TreeOptions,
    distance: Annotated[Literal["height", "depth"] | None, "Distance, for --tree; by default height."] = None,
    order: OrderOption = None,
    scores: ScoresOption = None,
    use: UseOption = None,
    ignore: IgnoreOption = "",
    skip_unlabelled: SkipUnlabelledOption = False,
    targets: Annotated[Path | None, "File of the targets; by default those of the predictions or the dataset."] = None,
    name: Annotated[str | None, "Name of the row; by default the common part of the file names."] = None,
    resamples: Annotated[
        int, typer.Option(min=0, max=1_000_000, help="Bootstrap resamples of one file, 100 or more; 0: no interval.")
    ] = 1000,
    runs: RunsOption = Path("runs"),
    data_dir: DataOption = Path("data"),
    metrics: MetricsOption = None,
    rules: Annotated[
        str | None, "Decision rules whose answers are scored, NAME[:PARAMETER=VALUE...], separated by commas."
    ] = None,
    as_: Annotated[
        str | None, "The numbers as others define them: all, or hiclass,hierulz,hiercls,mbm,crm,bioclip2."
    ] = None,
) -> CommandOutput:
    """Score predictions that were made elsewhere.

    The metrics have intervals, and are a row of the dataset's leaderboard.
    """
    from hierbench.answers.choices import parse_choices, split_rules
    from hierbench.answers.definitions import checked_sources
    from hierbench.leaderboard.columns import requested_columns
    from hierbench.studies.scoring.prediction_parts import ReadingOptions
    from hierbench.studies.scoring.score_files import ScoreRequest, score_files
    from hierbench.studies.scoring.score_report import report_table

    columns = requested_columns(metrics)
    if rules is not None and as_ is not None:
        raise UserError("give either --rules or --as: each is a table of its own")
    choices = parse_choices(split_rules(rules)) if rules else []
    definitions = checked_sources(as_.split(",")) if as_ else []
    request = ScoreRequest(
        files,
        dataset,
        tree,
        targets,
        name,
        distance,
        resamples,
        0,  # the seed of the resamples
        runs,
        data_dir,
        columns,
        options,
        ReadingOptions(order or "unknown", use, split_names(ignore), skip_unlabelled),
        scores,
        choices,
        definitions,
    )
    with plain_trees(tree):
        report = score_files(request)
    folders = " ".join(f"{runs}/{run_id[:12]}*/" for run_id in report.runs)
    where = folder_options(runs, data_dir)
    place = f"recorded in {folders}; the row is in: hierbench leaderboard --dataset {dataset}{where}"
    return CommandOutput(report_table(report), [place] if report.runs else [])
