"""Tables compared with their records: published tables, and tables in a runs folder."""

import glob
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, Field, field_validator, model_validator

from hierbench.config.overrides import flatten
from hierbench.config.recipe_source import is_dataset_file
from hierbench.config.sections import PROTOCOLS, Protocol
from hierbench.leaderboard.board import Board, planned_seeds
from hierbench.leaderboard.board_answers import BoardAnswers
from hierbench.leaderboard.columns import PAPER_COLUMNS, Column, find_column, further_names
from hierbench.leaderboard.extra_columns import counted_runs, with_columns
from hierbench.leaderboard.image_intervals import with_examples
from hierbench.leaderboard.ranking import rank
from hierbench.leaderboard.statistics import PAPER_METRICS
from hierbench.runs.findings import ConsistencyCheck
from hierbench.runs.further_metrics import read_further
from hierbench.runs.method_files import changed_sources, source_folders
from hierbench.runs.records import Records
from hierbench.runs.state import STATE_ORDER, Note, State
from hierbench.runs.store import RUN_ID
from hierbench.sharing.publication_folder import ANSWERS
from hierbench.sharing.received_files import Received
from hierbench.sharing.verification.published_answers import check_answers, published_answers, tree_finder
from hierbench.sharing.verification.published_pages import compare_pages, is_same
from hierbench.utils.errors import UserError
from hierbench.utils.files import parse_json_object

STATE_BY_NAME = {state.value: state for state in State}


class GivenRow(BaseModel):
    """A row as a table's .json has it; one beside the paper's has a number of runs, or None."""

    runs: tuple[Annotated[str, Field(pattern=rf"^{RUN_ID.pattern}$")], ...] | int | None
    metrics: dict[str, Any] = {}
    verdict: str = ""


class GivenTable(Received):
    """A table's .json as it was found: nothing in it is believed.

    Attributes:
        columns: names of its metrics; None where they are the paper's.
        content: all that it says.
    """

    dataset: str
    protocol: str
    rows: tuple[GivenRow, ...]
    columns: tuple[str, ...] | None = None
    content: dict[str, Any]

    @model_validator(mode="before")
    @classmethod
    def _keep(cls, content: dict[str, Any]) -> dict[str, Any]:
        return {**content, "content": content}

    @field_validator("dataset")
    @classmethod
    def _is_a_name(cls, dataset: str) -> str:
        if is_dataset_file(dataset):
            raise ValueError(f"{dataset!r} is the name of a file")
        return dataset

    @classmethod
    def read(cls, path: Path) -> Self:
        """Return a table; a UserError if the file cannot be read, is no table or has an unknown metric."""
        table = super().read(path)
        _ = table.shown(), *map(find_column, table.further)
        return table

    @property
    def further(self) -> list[str]:
        """The metrics beyond the paper's that its rows have."""
        return list(dict.fromkeys(name for row in self.rows for name in row.metrics if name not in PAPER_METRICS))

    @property
    def ids(self) -> list[str] | None:
        """The ids of its runs; None where a row does not name them, as beside the paper's."""
        rows = [row.runs for row in self.rows if isinstance(row.runs, tuple)]
        return list(dict.fromkeys(run_id for runs in rows for run_id in runs)) if len(rows) == len(self.rows) else None

    def shown(self) -> tuple[Column, ...]:
        """Return its columns."""
        return PAPER_COLUMNS if self.columns is None else tuple(map(find_column, self.columns))


def parse_protocol(name: str) -> Protocol | None:
    """Return the protocol of a table of runs, None for scored predictions alone."""
    return next((protocol for protocol in PROTOCOLS if protocol == name), None)


def check_tables(
    records: Records,
    dataset: str | None,
    data_dir: Path,
    name: str | None = None,
    file: str = "",
    answers: Callable[[], BoardAnswers | None] | None = None,
) -> list[ConsistencyCheck]:
    """Return a finding per table.

    Args:
        records: of the folder, as they were checked.
        dataset: whose published table is beside the folder, None for a runs folder.
        data_dir: prepared data, of the trees.
        name: of a runs folder, only tables of this dataset.
        file: of a user's dataset, where it was given: the recipe that its tables quote.
        answers: makes the answers behind the published table, by default from its records.
    """
    if dataset is not None:
        table = Path(os.path.normpath(records.root / os.pardir / f"{dataset}.json"))
        made = answers or (lambda: published_answers(Board.of(file or dataset, records), data_dir))
        found_answers = check_answers(records, data_dir, table.with_name(f"{dataset}{ANSWERS}.json"), made)
        finding = check_table(table, records, data_dir, file, published=True)
        finding.notes += map(Note, changed_sources(records, source_folders(records.root)))
        return [finding, *found_answers]
    files = [path for path in sorted(records.root.glob("leaderboard-*.json")) if _is_table(path, name)]
    findings = [check_table(path, records, data_dir, file) for path in files]
    return [*findings, *_without_values(records.root, name), *check_answers(records, data_dir, None)]


def _without_values(folder: Path, name: str | None) -> list[ConsistencyCheck]:
    """Return a finding for each .md in a runs folder that lacks its .json, which alone names the runs."""
    names = "leaderboard-*.md" if name is None else f"leaderboard-{glob.escape(name)}.md"
    pages = [path for path in sorted(folder.glob(names)) if not os.path.lexists(path.with_suffix(".json"))]
    problem = "is missing, and the .md was compared with nothing"
    return [
        ConsistencyCheck(str(page.with_suffix("")), notes=[Note(f"{page.with_suffix('.json').name} {problem}")])
        for page in pages
    ]


def metrics_shown(folder: Path, dataset: str | None) -> set[str]:
    """Return the metrics beyond the paper's that a published table, or the tables in a runs folder, have."""
    files = folder.glob("leaderboard-*.json") if dataset is None else [folder.absolute().parent / f"{dataset}.json"]
    return {name for path in files if (table := GivenTable.if_readable(path)) for name in table.further}


def _is_table(path: Path, name: str | None) -> bool:
    """Whether a file is a table of runs, or cannot be read; it may be one beside the paper's."""
    table = GivenTable.if_readable(path)
    return not path.is_symlink() if table is None else table.ids is not None and name in (None, table.dataset)


def check_table(
    path: Path, records: Records, data_dir: Path, file: str = "", *, published: bool = False
) -> ConsistencyCheck:
    """Compare a table's .json by value with a table made of the records; note its pages that differ.

    A published table is of all these records, and what it says of evidence is compared too. `file` is that of a user's
    dataset, "" where it was not given.
    """
    finding = ConsistencyCheck(str(path.with_suffix("")))
    try:
        found_table = GivenTable.read(path)
        ids = found_table.ids
        if ids is None:
            raise UserError("its rows do not name their runs")
        for run_id in ids:
            if run_id not in records or not records[run_id].content:
                finding.reject(f"it has the run {run_id[:12]}, whose record is not here")
        if finding.rejected:
            return finding
        all_records = _with_rejected(records)
        protocol = parse_protocol(found_table.protocol) if published else None
        board = Board.of(file or found_table.dataset, all_records, None if published else ids, protocol)
        content = found_table.content
        columns = found_table.shown()
        if values_are_kept(board, columns):
            board = board if columns == PAPER_COLUMNS else with_columns(board, columns, data_dir)
        else:
            finding.note("its columns beyond the paper's are not checked: their values are not kept with all runs")
            content = _drop_keys(content, found_table.further)
    except UserError as error:
        finding.reject(f"it cannot be made again from its records: {error}")
        return finding
    if published:
        board = with_examples(board, tree_finder(records, data_dir))
    board = _as_claimed(found_table, board, finding, published=published)
    _check_runs(board, finding, published=published)
    unknown = ["tuning"] if records.notes else []  # requests are ignored, which have the budgets
    made = parse_json_object(board.render("json"))
    for difference in _row_differences(_drop_keys(content, unknown), _drop_keys(made, unknown)):
        finding.reject(difference)
    if published and not finding.rejected:
        compare_pages(path, board, finding)
    return finding


def _check_runs(board: Board, finding: ConsistencyCheck, *, published: bool) -> None:
    """Reject a table that leaves out a finished run of its rows, below their last seed.

    A published one has all the finished runs that are beside it, and no unfinished ones.
    """
    shown = {run_id for row in board.rows for run_id in row.runs}
    run_ids = set(board.records.with_bases(shown))
    last: dict[str, int] = {}
    for record in map(board.records.get, shown):
        if record is not None and record.spec is not None:
            last[record.row] = max(record.job.seed, last.get(record.row, 0))
    for record in board.records:
        if record.spec is None or record.spec.split != "test":
            continue
        if published and record.state == "unfinished":
            finding.reject(f"the run {record.id[:12]} ({record.label}) is planned and not finished")
        elif record.done and record.id not in run_ids and (published or record.job.seed < last.get(record.row, 0)):
            finding.reject(f"the finished run {record.id[:12]} ({record.label}) is in no row")


def values_are_kept(board: Board, columns: Sequence[Column]) -> bool:
    """Whether no value of these columns would have to be computed for a board."""
    names = set(further_names(columns))
    runs = [run for row in board.rows for run in counted_runs(row, board.records)] if names else []
    return not any(run.has_predictions and not read_further(run, board.records).keys() >= names for run in runs)


def _with_rejected(records: Records) -> Records:
    """Return the records with rejected runs counted as finished: a table's values are compared all the same."""
    states = {
        run.id: replace(run, state=State.RECORDED) if run.state == State.REJECTED and run.result else run
        for run in records
    }
    return replace(records, by_id=states)


def _strength(state: State | None) -> int:
    return len(STATE_ORDER) if state is None else STATE_ORDER.index(state)


def _as_claimed(found_table: GivenTable, board: Board, finding: ConsistencyCheck, *, published: bool) -> Board:
    """Return a board with the verdicts that a table claims, and so ranked, after noting where the files here show less.

    Whoever made it may have had predictions, or have trained runs again.
    """
    claims: dict[object, State | None] = {row.runs: STATE_BY_NAME.get(row.verdict) for row in found_table.rows}
    claims |= {tuple(row.runs): row.state for row in board.rows if row.state == State.REJECTED}
    rows = [replace(row, state=claims.get(tuple(row.runs), row.state)) for row in board.rows]
    less = [
        row.title
        for row, made_row in zip(rows, board.rows, strict=True)
        if _strength(made_row.state) > _strength(row.state) or made_row.state == State.CLAIMED != row.state
    ]
    if less and published:
        finding.note(f"it says more of {', '.join(less[:3])}{', ...' if len(less) > 3 else ''} than is found here")
    planned = planned_seeds(board.dataset, board.protocol) if published else None
    ranked, seeds = rank(rows, planned, board.columns)
    return replace(board, rows=ranked, seeds=seeds)


def _row_differences(found_table: dict[str, Any], made: dict[str, Any]) -> Iterator[str]:
    """Yield the first value of each key, and of each row, in which a .json differs from one of the records."""
    for key in sorted((found_table.keys() | made.keys()) - {"rows", "columns"}):
        difference = _first_difference({key: found_table.get(key)}, {key: made.get(key)})
        if difference:
            yield difference
    unmatched = {tuple(row["runs"]): row for row in made["rows"]}
    for row in found_table["rows"]:
        label = f"{row.get('title')} {row.get('type')}"
        made_row = unmatched.pop(tuple(row["runs"]), None)
        if made_row is None:
            yield f"the row {label} is of runs that no row of the records has together"
        elif difference := _first_difference(row, made_row):
            yield f"the row {label}: {difference}"
    for row in unmatched.values():
        yield f"the row {row['title']} {row['type']}, which the records have, is missing"


def _first_difference(content: dict[str, Any], made: dict[str, Any]) -> str:
    """Return the first key whose values differ, "" without one."""
    values = dict(flatten(content))
    right = dict(flatten(made))
    for key in sorted(values.keys() | right.keys()):
        if not is_same(values.get(key), right.get(key)):
            return f"{key.replace('.', ' ')} is {values.get(key)!r}, the records give {right.get(key)!r}"
    return ""


def _drop_keys(content: Any, names: Collection[str]) -> Any:
    """Return JSON types without the keys of these names, at any depth."""
    if isinstance(content, dict):
        return {name: _drop_keys(value, names) for name, value in content.items() if name not in names}
    return [_drop_keys(value, names) for value in content] if isinstance(content, list) else content
