"""`hierbench report`."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from hierbench.cli.command import command, write_result
from hierbench.cli.shared_options import (
    IgnoreOption,
    OrderOption,
    ScoresOption,
    SkipUnlabelledOption,
    UseOption,
    dataset_option,
    plain_trees,
    split_names,
)
from hierbench.config.options import DataOption, RequestOption, RunsOption
from hierbench.utils.errors import UserError

if TYPE_CHECKING:
    from hierbench.studies.report.model_report import ModelReport


@command("report predictions.npz --tree cifar100")
def report(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[TEST...]", help="Predictions, .npz .npy .csv .parquet .json; one per seed."),
    ] = None,
    tree: Annotated[str | None, "File of a tree, or the name of a shipped one."] = None,
    validation: Annotated[
        list[Path] | None, "Predictions of other images, on which rules are fitted; one per file, repeated."
    ] = None,
    against: Annotated[
        list[Path] | None, "Predictions of another model for the same images; repeated for its seeds."
    ] = None,
    against_validation: Annotated[list[Path] | None, "Its validation files."] = None,
    *,
    dataset: Annotated[str | None, dataset_option("Report on runs of this dataset, in place of files.")] = None,
    rows: Annotated[str | None, "Rows of --dataset, one or two, METHOD[:TYPE], separated by a comma."] = None,
    order: OrderOption = None,
    scores: ScoresOption = None,
    use: UseOption = None,
    ignore: IgnoreOption = "",
    skip_unlabelled: SkipUnlabelledOption = False,
    targets: Annotated[Path | None, "File of the targets, where the predictions have none."] = None,
    group: Annotated[
        str, "Column or array of what images are of, a specimen or site: those of one are drawn together."
    ] = "",
    train_counts: Annotated[Path | None, "Training images of each class, CLASS,NUMBER lines or JSON."] = None,
    rules: Annotated[
        str | None, "Decision rules, separated by commas, as of hierbench answers; or none, which is faster."
    ] = None,
    runs: RunsOption = Path("runs"),
    data_dir: DataOption = Path("data"),
    request: RequestOption = None,
    rule: Annotated[Path | None, "Write the rule for the most information to this file, for a product."] = None,
    output: Annotated[
        Path | None, "The page, by default report.html; with the ending .json its numbers; - for none."
    ] = None,
    format_: Annotated[Literal["terminal", "json"], "What is printed: a summary, or all numbers as JSON."] = "terminal",
) -> None:
    """Report on a model's predictions: its mistakes, what to answer when unsure, whether another is better.

    Writes one page, report.html, and prints a summary.
    """
    from hierbench.answers.choices import split_rules
    from hierbench.studies.report.model_report import ReportSettings
    from hierbench.studies.report.report_request import ReportRequest, report_files
    from hierbench.studies.report.rule_fitting import REPORT_RULES
    from hierbench.studies.scoring.prediction_parts import ReadingOptions

    settings = ReportSettings([] if rules == "none" else split_rules(rules) if rules else REPORT_RULES)
    if (dataset is None) == (not files) or (dataset is None) != (rows is None):
        raise UserError("give files of predictions with --tree, or --dataset with --rows of its table")
    file_options = {
        "tree": tree,
        "validation": validation,
        "against": against,
        "against-validation": against_validation,
        "targets": targets,
        "group": group,
        "train-counts": train_counts,
        "order": order,
        "scores": scores,
        "use": use,
        "ignore": ignore,
        "skip-unlabelled": skip_unlabelled,
    }
    run_options = {"request": request}
    others = file_options if dataset is not None else run_options
    for option in (option for option, value in others.items() if value):
        kind = "files of predictions" if dataset is not None else "--dataset"
        raise UserError(f"--{option.replace('_', '-')} is for {kind}")
    page = output or Path("report.html")
    for path in (page, rule):
        if path is not None and not path.resolve().parent.is_dir():  # not after the computing
            raise UserError(f"{path}: no such folder")
    if dataset is not None and rows is not None:
        from hierbench.studies.report.run_report import report_runs

        names = [row.strip() for row in rows.split(",")]
        made = report_runs(dataset, names, settings, runs, data_dir, request)
    elif tree is None:
        raise UserError("give --tree: the file of a tree, or the name of one that ships")
    else:
        files_request = ReportRequest(
            files or [],
            tree,
            validation or [],
            against or [],
            against_validation or [],
            targets,
            reading=ReadingOptions(order or "unknown", use, split_names(ignore), skip_unlabelled, group),
            scores=scores,
            settings=settings,
            train_counts=train_counts,
        )
        with plain_trees(tree):
            made = report_files(files_request)
    written = _write(made, page, rule)
    print(made.json() if format_ == "json" else str(made), end="", flush=True)
    if written:
        print(f"wrote {' and '.join(written)}", file=sys.stderr, flush=True)


def _write(made: "ModelReport", page: Path, rule: Path | None) -> list[str]:
    """Write the page, "-" for none, and the file of the rule; return what was written."""
    deployed = made.rule if rule is not None else None
    if deployed is not None:
        deployed.content()  # its error comes before anything is written
    text = "" if str(page) == "-" else made.text_for(page)
    if text:
        write_result(text, page)
    if deployed is not None and rule is not None:
        deployed.write(rule)
    return [f"{page} ({len(text.encode()) / 1000:,.0f} kB)"] * bool(text) + [str(rule)] * (rule is not None)
