"""`hierbench reproduce`."""

from pathlib import Path
from typing import Annotated

import typer

from hierbench.cli.command import command, write_result
from hierbench.cli.options import JsonOption, dataset_option
from hierbench.config.options import (
    DataOption,
    DeviceOption,
    Place,
    ProtocolOfRuns,
    RequestOption,
    WeightsOption,
    jobs_of,
)
from hierbench.utils.errors import UserError


@command("reproduce runs ce:type-I")
def reproduce(
    board: Annotated[
        Path, typer.Argument(metavar="BOARD", help="A published table, FOLDER/DATASET, or a runs folder.")
    ],
    row: Annotated[str, typer.Argument(metavar="ROW[:METRIC]", help="METHOD[:TYPE], without a type each that it has.")],
    dataset: Annotated[
        str | None, dataset_option("Of the row, or the file of yours; not needed if there is one.")
    ] = None,
    protocol: ProtocolOfRuns = None,
    request: RequestOption = None,
    run: Annotated[bool, "Carry the command out, and compare."] = False,
    runs: Annotated[Path | None, "Folder of the new runs; by default one that is removed if all agree."] = None,
    data_dir: DataOption = Path("data"),
    source: Annotated[Path | None, "Your copy of the dataset, read if it is not prepared yet."] = None,
    weights: WeightsOption = None,
    device: DeviceOption = "auto",
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", parser=jobs_of, metavar="N|auto", help="Parallel jobs; auto: as many as fit."),
    ] = None,
    as_json: JsonOption = False,
) -> int:
    """Print the command behind a row; with --run, carry it out.

    Exit code 0 if all seeds are the same, bitwise or within the tolerance for another machine, 1 if one is not.
    """
    own = {"--runs": runs, "--source": source, "--weights": weights, "--jobs": jobs}
    given = [name for name, value in own.items() if value is not None] + ["--device"] * (device != "auto")
    if given and not run:
        raise UserError(f"{given[0]} is for --run, which carries the command out")
    from hierbench.reproduction.report import as_record, as_text
    from hierbench.reproduction.rows import find_rows
    from hierbench.utils.files import as_json_text

    again = {"data_dir": data_dir, "source": source, "weights": weights, "device": device, "jobs": jobs}
    shown, code = [], 0
    for one in find_rows(Place(board, data_dir, protocol, request), row, dataset):
        notes, compared = list(one.notes), None
        if run:
            from hierbench.reproduction.again import carry_out

            compared, kept = carry_out(one, runs, again)
            notes += kept
            code |= any(seed.verdict not in ("bitwise", "close") for seed in compared)
        shown.append((one, notes, compared))
    if as_json:
        write_result(as_json_text({"schema": 1, "rows": [as_record(*one) for one in shown]}), None)
    else:
        write_result("\n".join(as_text(*one) for one in shown), None)
    return code
