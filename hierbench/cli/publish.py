"""`hierbench publish`."""

from pathlib import Path
from typing import Annotated

import typer

from hierbench.cli.command import command, print_lines
from hierbench.cli.shared_options import MetricsOption
from hierbench.config.options import DatasetOption, RunSelection


@command("publish --dataset shapes --output boards")
def publish(
    dataset: DatasetOption,
    output: Annotated[Path, typer.Option(metavar="FOLDER", help="Folder of publications; replaced as a whole.")],
    selection: RunSelection,
    metrics: MetricsOption = None,
    formats: Annotated[str, "Further files of the table: csv, latex, both, or none."] = "csv,latex",
) -> None:
    """Publish a table with the evidence behind it, or add runs to a published one.

    The evidence is one archive of records and compact predictions; beside it are sources of methods, pictures and the
    verdict of verification.
    """
    from hierbench.leaderboard.columns import requested_columns
    from hierbench.sharing.publication import publish as publish_table
    from hierbench.sharing.publication_folder import requested_formats

    columns = None if metrics is None else requested_columns(metrics)
    lines = publish_table(dataset, output, selection, columns, formats=requested_formats(formats))
    print_lines(lines.notes, lines.lines)
