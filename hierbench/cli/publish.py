"""`hierbench publish`."""

from pathlib import Path
from typing import Annotated

import typer

from hierbench.cli.command import command, print_said
from hierbench.cli.options import MetricsOption
from hierbench.config.options import DatasetOption, Place


@command("publish --dataset shapes --output boards")
def publish(
    dataset: DatasetOption,
    output: Annotated[Path, typer.Option(metavar="FOLDER", help="Of publications; replaced as a whole.")],
    place: Place,
    metrics: MetricsOption = None,
    update: Annotated[bool, "Add to the publication that is there, and replace rows of it."] = False,
    because: Annotated[str, "Why rows disappear or get worse; kept with the changes."] = "",
) -> None:
    """Publish a table with the evidence behind it: records, compact predictions, sources, pictures, the verdict."""
    from hierbench.experiments.publication.publish import Request
    from hierbench.experiments.publication.publish import publish as publish_table
    from hierbench.leaderboard.columns import asked_columns

    columns = None if metrics is None else asked_columns(metrics)
    request = Request(dataset, output, place.runs, place.data_dir, place.protocol, columns, update, because)
    said = publish_table(request)
    print_said(said.notes, said.lines)
