"""`hierbench reproduce`."""

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hierbench.cli.command import command
from hierbench.cli.shared_options import dataset_option
from hierbench.config.options import (
    DataOption,
    RequestOption,
    RunSelection,
    WeightsOption,
    parse_jobs,
)
from hierbench.leaderboard.table import CommandOutput, Line, Table, Text
from hierbench.utils.errors import UserError

if TYPE_CHECKING:
    from hierbench.studies.reproduction import RecordedRow
    from hierbench.studies.retraining import Repetition

PACKAGES = ("hierbench", "torch", "python", "device", "threads")
MEANING = {
    "bitwise": "bitwise the same",
    "close": "within tolerance, not bitwise",
    "differs": "differs",
    "failed": "failed",
}


@command("reproduce runs ce:type-I", table="terminal", output=None)
def reproduce(
    board: Annotated[
        Path, typer.Argument(metavar="BOARD", help="A published table, FOLDER/DATASET, or a runs folder.")
    ],
    row: Annotated[str, typer.Argument(metavar="ROW[:METRIC]", help="METHOD[:TYPE]; without a type, all types.")],
    dataset: Annotated[
        str | None, dataset_option("Dataset of the row, or your dataset's file; not needed if there is only one.")
    ] = None,
    request: RequestOption = None,
    constraints: Annotated[bool, "Print the recorded versions of packages, for pip install -c."] = False,
    run: Annotated[bool, "Run the command, and compare."] = False,
    runs: Annotated[Path | None, "Folder of the new runs; by default one that is removed if all agree."] = None,
    data_dir: DataOption = Path("data"),
    weights: WeightsOption = None,
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", parser=parse_jobs, metavar="N|auto", help="Parallel jobs; auto: as many as fit."),
    ] = None,
) -> CommandOutput | int:
    """Print the command behind a row; with --run, run it.

    Exit code 0 if all seeds are the same, bitwise or within the tolerance for another machine, 1 if one is not.
    """
    run_options = {"--runs": runs, "--weights": weights, "--jobs": jobs}
    used_options = [name for name, value in run_options.items() if value is not None]
    if used_options and not run:
        raise UserError(f"{used_options[0]} is for --run, which runs the command")
    from hierbench.studies.reproduction import constraints as constraints_of
    from hierbench.studies.reproduction import find_rows
    from hierbench.studies.retraining import repeat

    again = {"data_dir": data_dir, "weights": weights, "device": "auto", "jobs": jobs}
    rows = find_rows(RunSelection(board, data_dir, request=request), row, dataset)
    if constraints:
        print(constraints_of(rows), end="")
        return 0
    shown = []
    code = 0
    for recorded in rows:
        compared, kept = repeat(recorded, runs, again) if run else ({}, [])
        code |= any(not repetition.agrees for repetition in compared.values())
        shown.append(_content(recorded, kept, compared))
    commands = [
        shlex.join(content["command"]) if content["command"] else json.dumps(content["spec"]) for content in shown
    ]
    lines = [Line(list(map(Text, words))) for content in shown for words in _lines(content)]
    table = Table("Behind a row", ["Row", "What", "Value"], lines, above=commands, merged=1, content={"rows": shown})
    return CommandOutput(table, code=code)


def _content(recorded: "RecordedRow", kept: list[str], compared: dict[int, "Repetition"]) -> dict[str, Any]:
    """Return a row's command, runs, metrics and environment as JSON types; without a command, the spec of a run."""
    from hierbench.runs.requests import command_words

    spec = next(iter(recorded.runs.values())).job
    cells = {name: recorded.row.metrics[name] for name in recorded.metrics}
    environments = [run.environment for run in recorded.runs.values()]
    command = None if recorded.options is None else command_words(vars(recorded.options))
    return {
        "method": recorded.row.method,
        "type": recorded.row.type,
        "title": recorded.row.title,
        "protocol": spec.protocol,
        "command": command,
        "seeds": list(recorded.runs),
        "runs": [run.folder.name for run in recorded.runs.values()],
        "jobs": list(recorded.specs),
        "metrics": {
            name: {"mean": cell.mean, "ci95": cell.ci95, "values": cell.values} for name, cell in cells.items()
        },
        "environment": {
            name: list(dict.fromkeys(str(environment.get(name, "unknown")) for environment in environments))
            for name in PACKAGES
        },
        "data": spec.dataset.digest,
        "tree": spec.dataset.hierarchy,
        "distance": spec.dataset.distance,
        "weights": spec.weights,
        "code": recorded.codes,
        "notes": [*recorded.notes, *kept],
        "again": [{"seed": seed, **vars(repetition)} for seed, repetition in compared.items()],
        **({} if command else {"spec": spec.content()}),
    }


def _lines(content: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield a line per property of a row, and one per seed that was trained again: row, name, value."""
    row = f"{content['method']}:{content['type']}"
    yield row, "title", f"{content['title']}, protocol {content['protocol']}"
    yield row, "seeds", ", ".join(map(str, content["seeds"]))
    for name, cell in content["metrics"].items():
        yield row, name, f"{cell['mean']:.4f}" + ("" if cell["ci95"] is None else f" +/- {cell['ci95']:.4f}")
    for name, values in content["environment"].items():
        yield row, name, " and ".join(values)
    yield row, "data", f"SHA-256 {content['data']}"
    yield row, "tree", f"SHA-256 {content['tree']}, distance {content['distance']}"
    yield row, "weights", f"SHA-256 {content['weights']}" if content["weights"] else "none"
    yield from ((row, f"code of {name}", f"SHA-256 {code}") for name, code in content["code"].items())
    yield from ((row, "note", note) for note in content["notes"])
    for repetition in content["again"]:
        pairs = ((name, *map(_number, pair)) for name, pair in repetition["metrics"].items())
        values = ", ".join(f"{name} {old} -> {new}" for name, old, new in pairs)
        yield (
            row,
            f"seed {repetition['seed']} again",
            MEANING[repetition["verdict"]] + (f" ({values})" if values else ""),
        )


def _number(value: float | None) -> str:
    return "-" if value is None or value != value else f"{value:.6g}"
