"""`hierbench publish`: a table and the evidence behind it, written into a folder of publications, or updated there."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hierbench.config.recipe import dataset_name
from hierbench.config.scored import is_scored
from hierbench.config.sections import PROTOCOLS, Protocol
from hierbench.config.spec import Spec
from hierbench.experiments.publication.changes import read_changes, write_changes
from hierbench.experiments.publication.checked import checked_board, refuse_rejected
from hierbench.experiments.publication.compose import (
    Part,
    Publication,
    columns_of,
    compose,
    read_state,
    refuse_unfinished,
)
from hierbench.experiments.publication.difference import BoardDifference, State, compare_states
from hierbench.experiments.publication.place import checked_place, is_published, replaced
from hierbench.experiments.publication.records import ids_of
from hierbench.leaderboard.board import Board, NoRunsError
from hierbench.leaderboard.columns import PAPER, Column, further
from hierbench.leaderboard.measured import with_columns
from hierbench.runs.store import Store
from hierbench.utils.errors import UserError
from hierbench.utils.files import refuse_links
from hierbench.utils.text import one_line

LONGEST = 500  # characters of --because
SHOWN = 4  # settings named in an error


@dataclass(frozen=True)
class Request:
    """The options of `hierbench publish`; None for columns takes the paper's, or those of the table to update."""

    dataset: str
    folder: Path
    runs: Path = Path("runs")
    data_dir: Path = Path("data")
    protocol: Protocol | None = None
    columns: tuple[Column, ...] | None = None
    update: bool = False
    because: str = ""


def publish(request: Request) -> list[str]:
    """Publish a table; return the lines that say what was written, changed and left out.

    Raises:
        UserError: there is a publication and no `update`; verification rejects a run; a run is not finished; or an
            update makes something worse and `because` does not say why. Nothing is written then.
    """
    if request.because and not request.update:
        raise UserError("--because is for --update")
    folder, name = checked_place(request.folder), dataset_name(request.dataset)
    _check_there(folder, name, request.update)
    board, part, notes = _runs(request)
    with replaced(folder, name) as staging:
        updates = _check_there(folder, name, request.update)
        columns = request.columns or (columns_of(folder, name) if updates else PAPER)
        parts, old = [part], State(Board(name, "", "", []), {})
        if updates:
            old = _earlier(request, folder, name, board)
            if kept := _kept(Store(folder / name), old.board, part):
                parts = [Part(Store(folder / name), kept), part]
        protocol: Protocol | None = next((one for one in PROTOCOLS if one == board.protocol), None)
        made = compose(staging, request.dataset, parts, request.data_dir, protocol, columns)
        found = compare_states(old, made.state)
        if updates and not request.because:
            refuse_worse(found)
        because = one_line(request.because, LONGEST)
        write_changes(staging, name, found, because, read_changes(folder, name) if updates else [])
    return [*notes, *made.notes, *((found.lines() or ["no row has changed"]) if updates else []), written(folder, made)]


def written(folder: Path, made: Publication) -> str:
    """Return the line that says what a publication holds."""
    runs = f"{len(made.report.runs)} run{'s' if len(made.report.runs) != 1 else ''}"
    counts = ", ".join(f"{num} {verdict}" for verdict, num in made.report.counts().items() if num)
    return f"wrote {folder / made.board.dataset}.md, its JSON and the records of its runs; {runs}: {counts}"


def refuse_worse(found: BoardDifference) -> None:
    """Raise a UserError that names the first row that got worse."""
    if found.worse:
        (row, why), *others = found.worse
        more = f" (and {len(others)} more)" if others else ""
        raise UserError(f"{row} gets worse: {why}{more}; say why with --because TEXT, or leave it out")


def _check_there(folder: Path, name: str, update: bool) -> bool:
    """Return whether a publication is updated; a UserError if there is one and it may not be."""
    records = refuse_links(folder, name)
    if not is_published(folder, name):
        return False
    if not update:
        raise UserError(f"{records} exists; move it away to publish again, or change it with --update")
    return records.is_dir()


def _runs(request: Request) -> tuple[Board, Part, list[str]]:
    """Return the table to publish, after verification, and its runs, with the values of further columns computed."""
    store = Store(request.runs)
    board, report = checked_board(request.dataset, store, request.data_dir, request.protocol)
    notes = refuse_rejected(board, report, store)
    refuse_unfinished(board)
    if request.columns is not None and further(request.columns):
        with_columns(board, request.columns, store, request.data_dir)
    return board, Part(store, ids_of(board, store)), notes


def _earlier(request: Request, folder: Path, name: str, board: Board) -> State:
    """Return the state of the publication to update; a UserError if its rows and the new ones share no table."""
    store = Store(folder / name)
    try:
        old = read_state(folder, name, request.data_dir)
    except NoRunsError:
        raise UserError(f"{store.root} has no records that could be updated; move it away to publish again") from None
    specs = [spec for spec in (_shared_spec(old.board, store), _shared_spec(board, Store(request.runs))) if spec]
    if len(specs) == 2 and (odd := settings_that_differ(*specs)):
        never = any(key.startswith(("protocol", "dataset.", "evaluation.")) for key in odd)
        if never or not request.because:
            way_out = "publish into another folder" + ("" if never else ", or say why with --because TEXT")
            raise UserError(f"{store.root} is of other settings ({', '.join(odd[:SHOWN])}); {way_out}")
    return old


def _shared_spec(board: Board, store: Store) -> Spec | None:
    ids = [run_id for row in board.rows if not row.scored for run_id in row.runs]
    return Spec.model_validate(store.run(ids[0]).spec()) if ids else None


def settings_that_differ(one: Spec, other: Spec) -> list[str]:
    """Return "key old -> new" for each setting that the rows of a table share and these two specs do not."""
    contents = [_flat(spec.content()) for spec in (one, other)]
    own = ("method.", "type", "seed", "base", "train.lr.", "train.lr")
    keys = [key for key in dict.fromkeys([*contents[0], *contents[1]]) if not key.startswith(own)]
    values = [(key, *(one_line(str(content.get(key, "default")), 40) for content in contents)) for key in keys]
    return [f"{key} {before} -> {after}" for key, before, after in values if before != after]


def _flat(content: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in content.items():
        found |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return found


def _kept(old: Store, board: Board, new: Part) -> Sequence[str]:
    """Return the ids of earlier records that stay: all but scored predictions whose name stands for others now."""
    specs = [new.store.run(run_id).spec() for run_id in new.ids]
    named = {spec["name"] for spec in specs if is_scored(spec)}

    def stays(run_id: str) -> bool:
        spec = old.run(run_id).spec()
        return not is_scored(spec) or spec["name"] not in named

    return [run_id for run_id in ids_of(board, old) if stays(run_id)]
