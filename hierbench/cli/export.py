"""`hierbench export`."""

from dataclasses import replace
from typing import Annotated

import typer

from hierbench.cli.command import command, write_result
from hierbench.cli.options import MetricsOption, OutputOption
from hierbench.config.options import DatasetOption, Place
from hierbench.utils.errors import UserError


@command("export haframe:type-II --dataset shapes")
def export(
    row: Annotated[str, typer.Argument(metavar="METHOD:TYPE", help="The row, as in haframe:type-II.")],
    dataset: DatasetOption,
    place: Place,
    metrics: MetricsOption = None,
    name: Annotated[str | None, "Of the model in the card; by default METHOD-TYPE-DATASET."] = None,
    output: OutputOption = None,
) -> None:
    """Write a verified row as the header of a model card: the model-index of the Hugging Face hub."""
    from hierbench.config.recipe import dataset_name, load_recipe, recipe_names
    from hierbench.leaderboard.columns import asked_columns
    from hierbench.leaderboard.opening import folder_of
    from hierbench.leaderboard.paired import named_rows
    from hierbench.sharing.model_index import model_index
    from hierbench.sharing.verification.checked import checked_board

    root = folder_of(place.runs, dataset_name(dataset))
    board = checked_board(dataset, replace(place, runs=root), asked_columns(metrics)).board
    found = named_rows(board.rows, row)
    if len(found) != 1:
        names = ", ".join(f"{one.method}:{one.type}" for one in found)
        raise UserError(f"{row} stands for several rows: {names}; name one")
    (chosen,) = found
    known = dataset != dataset_name(dataset) or dataset in recipe_names()
    recipe = load_recipe(dataset) if known else None
    digest = board.records[chosen.runs[0]].content["dataset"]["digest"] if chosen.runs else ""
    title = name or f"{chosen.method}-{chosen.type}-{board.dataset}"
    write_result(model_index(board, chosen, digest, recipe, title), output)
