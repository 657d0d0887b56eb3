"""`hierbench publish`."""

from pathlib import Path
from typing import Annotated

import typer

from hierbench.cli.options import MetricsOption, ProtocolOfRuns, print_said
from hierbench.config.options import DataOption, DatasetOption, RunsOption


def publish(
    dataset: DatasetOption,
    to: Annotated[Path, typer.Option("--to", help="Folder of publications; it is replaced as a whole.")],
    runs: RunsOption = Path("runs"),
    data_dir: DataOption = Path("data"),
    protocol: ProtocolOfRuns = None,
    metrics: MetricsOption = None,
    update: Annotated[
        bool, typer.Option("--update", help="Add to the publication that is there, and replace rows of it.")
    ] = False,
    because: Annotated[str, typer.Option(help="Why rows disappear or get worse; kept with the changes.")] = "",
) -> None:
    """Publish a table with the evidence behind it: records, compact predictions, sources, pictures, the verdict."""
    from hierbench.experiments.publication.publish import Request
    from hierbench.experiments.publication.publish import publish as publish_table
    from hierbench.leaderboard.columns import asked_columns

    columns = None if metrics is None else asked_columns(metrics)
    said = publish_table(Request(dataset, to, runs, data_dir, protocol, columns, update, because))
    print_said(said.notes, said.lines)
