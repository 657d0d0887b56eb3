"""`hierbench plot`."""

from pathlib import Path
from typing import Annotated

import typer

from hierbench.cli.command import command
from hierbench.config.options import DatasetOption, RunSelection
from hierbench.leaderboard.pictures import PLOT_TITLES


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
    output: Annotated[Path | None, "SVG, PDF or PNG; by default plots/KIND-DATASET.svg in the runs folder."] = None,
) -> None:
    """Draw a figure that also works in print and without colour."""
    from hierbench.config.recipe import dataset_name
    from hierbench.leaderboard.open_board import open_board
    from hierbench.leaderboard.pictures import style
    from hierbench.leaderboard.pictures.figure_data import draw
    from hierbench.utils.files import refuse_links

    if output is not None:
        style.check_output(output)
    # Options that are not the default are part of the name, so that figures do not replace each other.
    parts = [kind, dataset_name(dataset), selection.request]
    target = output or refuse_links(selection.runs, "plots") / f"{'-'.join(filter(None, parts))}.svg"
    drawing = draw(kind, open_board(dataset, selection, with_unranked=False))
    style.write_figure(drawing.figure, target)
    for remark in drawing.remarks:
        print(remark)
    print(f"wrote {target}")
