"""`hierbench plot`."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import typer

from hierbench.cli.options import ProtocolOfRuns
from hierbench.config.names import complete_dataset
from hierbench.config.options import DataOption, RunsOption
from hierbench.reports.plots import KINDS
from hierbench.utils.errors import UserError, unknown_name

OF_RUNS = set(KINDS) - {"similarity", "frame"}


def _complete_kind(incomplete: str) -> list[str]:
    return [kind for kind in KINDS if kind.startswith(incomplete)]


def plot(
    kind: Annotated[
        str,
        typer.Argument(
            help=" ".join(f"{kind}: {about}" for kind, about in KINDS.items()), autocompletion=_complete_kind
        ),
    ],
    dataset: Annotated[
        str,
        typer.Option(
            help="See: hierbench data list. similarity takes all; frame draws an example without it.",
            autocompletion=complete_dataset,
        ),
    ] = "",
    runs: RunsOption = Path("runs"),
    data_dir: DataOption = Path("data"),
    source: Annotated[
        Literal["runs", "paper"], typer.Option(help="For tradeoff: our runs, or the published table.")
    ] = "runs",
    protocol: ProtocolOfRuns = None,
    run: Annotated[str | None, typer.Option(help="For confusion: the beginning of the run's id.")] = None,
    method: Annotated[str | None, typer.Option(help="For confusion: the method of the run.")] = None,
    type_: Annotated[str | None, typer.Option("--type", help="For confusion; by default the first type.")] = None,
    seed: Annotated[int | None, typer.Option(help="For confusion; by default the smallest seed.")] = None,
    output: Annotated[
        Path | None, typer.Option(help="SVG, PDF or PNG file; by default plots/KIND-DATASET.svg in the runs folder.")
    ] = None,
) -> None:
    """Draw a figure that also works in print and without colour."""
    from importlib import import_module

    from hierbench.config.recipe import dataset_name
    from hierbench.reports.plots import style
    from hierbench.reports.plots.source import Request
    from hierbench.utils.files import refuse_links

    _check(kind, dataset, source, protocol, {"--run": run, "--method": method, "--type": type_, "--seed": seed})
    if output is not None:
        style.check_output(output)
    # What is not the default is part of the name, so that one figure does not replace another.
    parts = [kind, dataset_name(dataset) or "example", "published" if source == "paper" else None, protocol]
    target = output or refuse_links(runs, "plots") / f"{'-'.join(filter(None, parts))}.svg"
    request = Request(dataset, runs, data_dir, source, protocol, run, method, type_, seed)
    if kind in OF_RUNS and source == "runs":
        from hierbench.experiments.checking import counted, store_of

        found = counted(dataset, store_of(dataset, runs), data_dir)
        request = replace(request, verified=found.store, rejected=found.rejected)
    with style.house_style():
        drawing = import_module(f"hierbench.reports.plots.{kind}").draw(request)
        style.write_figure(drawing.figure, target)
    for remark in drawing.remarks:
        print(remark)
    print(f"wrote {target}")


def _check(kind: str, dataset: str, source: str, protocol: str | None, choice: dict[str, str | int | None]) -> None:
    """Raise a UserError for an unknown kind or a wrong combination of options."""
    if kind not in KINDS:
        raise unknown_name("plot", kind, KINDS)
    if not dataset and kind != "frame":
        raise UserError("Missing option '--dataset'.")
    if dataset == "all" and kind != "similarity":
        raise UserError("--dataset all is for similarity; the other kinds show one dataset")
    if source == "paper" and kind != "tradeoff":
        raise UserError("--source paper is for tradeoff; the paper has no numbers for the other plots")
    if source == "paper" and protocol is not None:
        raise UserError("--protocol is for runs; the paper's tables are as printed")
    given = [option for option, value in choice.items() if value is not None]
    if given and kind != "confusion":
        raise UserError(f"{given[0]} is for confusion; {kind} shows all runs of the leaderboard")
    if "--run" in given and (len(given) > 1 or protocol is not None):
        raise UserError(f"--run names the run: leave out {given[1] if len(given) > 1 else '--protocol'}")
