"""`hierbench reproduce`."""

import sys
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hierbench.cli.options import ProtocolOfRuns
from hierbench.config.names import complete_dataset
from hierbench.config.options import DataOption, DeviceOption, WeightsOption, jobs_of
from hierbench.utils.errors import UserError

if TYPE_CHECKING:
    from hierbench.experiments.reproduction.again import Compared
    from hierbench.experiments.reproduction.rows import Recorded
    from hierbench.runs.store import Store


def reproduce(
    board: Annotated[
        Path, typer.Argument(metavar="BOARD", help="A published table, FOLDER/<dataset>, or a runs folder.")
    ],
    row: Annotated[str, typer.Argument(metavar="ROW[:METRIC]", help="METHOD[:TYPE], without a type each that it has.")],
    dataset: Annotated[
        str | None,
        typer.Option(
            "--dataset",
            help="Of the row, or the file of yours; not needed if there is one.",
            autocompletion=complete_dataset,
        ),
    ] = None,
    protocol: ProtocolOfRuns = None,
    run: Annotated[bool, typer.Option("--run", help="Carry the command out, and compare.")] = False,
    runs: Annotated[
        Path | None, typer.Option("--runs", help="Folder of the new runs; by default one that is removed if all agree.")
    ] = None,
    data_dir: DataOption = Path("data"),
    source: Annotated[
        Path | None, typer.Option("--source", help="Your copy of the dataset, read if it is not prepared yet.")
    ] = None,
    weights: WeightsOption = None,
    device: DeviceOption = "auto",
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", parser=jobs_of, metavar="N|auto", help="Parallel jobs; auto: as many as fit."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print the command that gives a row of a table, and what it takes; with --run, carry it out and compare.

    Exit code 0 if all seeds are the same, bitwise or within the tolerance for another machine, 1 if one is not.
    """
    own = {"--runs": runs, "--source": source, "--weights": weights, "--jobs": jobs}
    given = [name for name, value in own.items() if value is not None] + ["--device"] * (device != "auto")
    if given and not run:
        raise UserError(f"{given[0]} is for --run, which carries the command out")
    from hierbench.experiments.reproduction.report import as_record, as_text
    from hierbench.experiments.reproduction.rows import find_rows
    from hierbench.utils.files import as_json_text

    _, store, found = find_rows(board, row, dataset, protocol, data_dir)
    again = {"data_dir": data_dir, "source": source, "weights": weights, "device": device, "jobs": jobs}
    shown, code = [], 0
    for one in found:
        notes, compared = list(one.notes), None
        if run:
            compared, kept = _carry_out(one, store, runs, again)
            notes += kept
            code |= any(seed.verdict not in ("bitwise", "close") for seed in compared)
        elif said := _planned(one, data_dir):
            notes.append(said)
        shown.append((one, notes, compared))
    if as_json:
        print(as_json_text({"schema": 1, "rows": [as_record(*one) for one in shown]}), end="", flush=True)
    else:
        print("\n".join(as_text(*one) for one in shown), end="", flush=True)
    raise typer.Exit(code)


def _planned(found: "Recorded", data_dir: Path) -> str:
    """Plan the command without running anything; return what is to be said."""
    from contextlib import redirect_stdout

    from hierbench.experiments.reproduction.planned import check_plan

    with redirect_stdout(sys.stderr):  # a method may print
        return check_plan(found, data_dir)


def _carry_out(
    found: "Recorded", store: "Store", runs: Path | None, again: dict[str, Any]
) -> "tuple[list[Compared], list[str]]":
    """Carry the command out; a folder of its own is removed if every seed agrees, otherwise named in the notes."""
    import shutil

    from hierbench.experiments.reproduction.again import run_again

    folder = Path(mkdtemp(prefix="hierbench-reproduce-")) if runs is None else runs
    agree = False
    try:
        compared = run_again(found, store, {**again, "runs": folder})
        agree = all(seed.verdict in ("bitwise", "close") for seed in compared)
    finally:
        if runs is None and (agree or not any(folder.iterdir())):
            shutil.rmtree(folder)
    return compared, [] if runs is None and agree else [f"the new runs are in {folder}"]
