"""`hierbench runs`."""

from pathlib import Path
from typing import Annotated

from hierbench.cli.command import command
from hierbench.cli.shared_options import dataset_option
from hierbench.config.options import RunsOption
from hierbench.leaderboard.table import Line, Number, Table, Text
from hierbench.utils.errors import UserError
from hierbench.utils.text import one_line

RUN_COLUMNS = "Recipe,Method,Type,Seed,State,Top-1 ↑,Mistake severity ↓,Minutes,Request,Folder".split(",")


@command("runs --dataset shapes", table="markdown", output=None)
def runs(
    dataset: Annotated[str | None, dataset_option("Only runs of this recipe.")] = None,
    folder: RunsOption = Path("runs"),
) -> Table:
    """List the runs of a folder, with their states and results.

    The newest request is at the bottom. Request is the last request that names a run, for --request.
    """
    from hierbench.config.recipe import dataset_name
    from hierbench.runs.record import differing_params
    from hierbench.runs.record_reader import read_records
    from hierbench.runs.requests import SHOWN_DIGITS
    from hierbench.utils.lock import Lock

    if not folder.is_dir():
        raise UserError(f"no folder {folder}")
    records = read_records(folder, dataset=None if dataset is None else dataset_name(dataset))
    differing = differing_params(records)
    request_of = {run_id: request.id for request in records.requests for run_id in request.ids}
    lines = []
    for record in records:
        name = record.label
        kind = "scored"
        seed = ""
        if record.spec is not None:
            name = record.spec.method.name
            kind = record.spec.type
            seed = str(record.spec.seed)
            name += f" ({differing[record.id]})" if record.id in differing else ""
        state = record.state if record.state != "unfinished" else str(record.status.get("state", "planned"))
        if state == "running" and record.spec is not None and Lock(record.folder).holder() is None:
            state = f"stopped at epoch {record.epochs_done} of {record.spec.train.rounds}"
        numbers = [record.metrics.get("top1"), record.metrics.get("mistake_severity")]
        recipe = record.dataset.name if record.dataset else ""
        lines.append(
            Line(
                [
                    *(Text(one_line(text)) for text in (recipe, name, kind, seed, state)),
                    *map(Number, numbers),
                    Number(record.seconds / 60 if record.done else None, ".1f"),
                    Text(request_of.get(record.id, "")[:SHOWN_DIGITS]),
                    Text(record.id[:12]),
                ]
            )
        )
    return Table(f"Runs in {folder}", RUN_COLUMNS, lines, notes=records.notes)
