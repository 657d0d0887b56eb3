"""`hierbench plot`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from hierbench.cli.command import command
from hierbench.config.options import DatasetOption, RunSelection
from hierbench.figures.plots import PLOT_TITLES
from hierbench.utils.errors import UserError, unknown_name


@command("plot tradeoff --dataset shapes", protocol=None)
def plot(
    kind: Annotated[
        str,
        typer.Argument(
            help=" ".join(f"{kind}: {about}" for kind, about in PLOT_TITLES.items()),
            autocompletion=lambda incomplete: [kind for kind in PLOT_TITLES if kind.startswith(incomplete)],
        ),
    ],
    *,
    dataset: DatasetOption,
    selection: RunSelection,
    row: Annotated[str | None, "For confusion: METHOD[:TYPE] of the run; by default the first type."] = None,
    seed: Annotated[int | None, "For confusion; by default the smallest seed."] = None,
    output: Annotated[Path | None, "SVG, PDF or PNG; by default plots/KIND-DATASET.svg in the runs folder."] = None,
) -> None:
    """Draw a figure that also works in print and without colour."""
    from hierbench.config.recipe import dataset_name
    from hierbench.figures.plots import style
    from hierbench.figures.plots.figure_data import FigureRequest, draw
    from hierbench.utils.files import refuse_links

    _check(kind, {"--row": row, "--seed": seed})
    if output is not None:
        style.check_output(output)
    # Options that are not the default are part of the name, so that figures do not replace each other.
    parts = [kind, dataset_name(dataset), selection.request]
    target = output or refuse_links(selection.runs, "plots") / f"{'-'.join(filter(None, parts))}.svg"
    from hierbench.leaderboard.open_board import open_board

    board = open_board(dataset, selection, with_unranked=False)
    method, _, feature_type = (row or "").partition(":")
    which: dict[str, Any] = {"method": method or None, "type": feature_type or None, "seed": seed}
    drawing = draw(kind, FigureRequest(dataset, selection.data_dir, board, **which))
    style.write_figure(drawing.figure, target)
    for remark in drawing.remarks:
        print(remark)
    print(f"wrote {target}")


def _check(kind: str, choice: dict[str, str | int | None]) -> None:
    """Raise a UserError for an unknown kind or a wrong combination of options."""
    if kind not in PLOT_TITLES:
        raise unknown_name("plot", kind, PLOT_TITLES)
    options = [option for option, value in choice.items() if value is not None]
    if options and kind != "confusion":
        raise UserError(f"{options[0]} is for confusion; {kind} shows all runs of the leaderboard")
