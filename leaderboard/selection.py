"""Which rows or which run a user means: rows by name; a run by the beginning of its id, or by its row and seed."""

from dataclasses import replace

from hierbench.config.options import RunSelection
from hierbench.config.recipe import recipe_names
from hierbench.config.recipe_source import is_dataset_file
from hierbench.config.sections import FEATURE_TYPES
from hierbench.config.spec import Spec
from hierbench.leaderboard.board import Board
from hierbench.leaderboard.columns import PAPER_COLUMNS, find_column, further_names
from hierbench.leaderboard.open_board import open_board
from hierbench.leaderboard.paired import named_rows
from hierbench.leaderboard.scored_rows import is_scored_row
from hierbench.leaderboard.statistics import Row
from hierbench.runs.record import Record
from hierbench.runs.record_reader import read_records
from hierbench.runs.records import Records
from hierbench.runs.state import State
from hierbench.utils.errors import UserError

MAX_LISTED_RUNS = 6  # runs listed in an error


def open_rows(selection: RunSelection, name: str, dataset: str | None) -> tuple[str, Records, list[Row], str | None]:
    """Return the dataset, records and rows that METHOD[:TYPE][:METRIC] names, and its metric, None without.

    Args:
        selection: a runs folder, or a published table: the folder of its records, or the .json or .md beside it.
        name: of rows that can be trained.
        dataset: a recipe's name or file; None where all runs are of one recipe that ships.

    Raises:
        UserError: no such folder, row or metric; or several datasets.
    """
    folder = selection.runs.with_suffix("") if selection.runs.suffix in (".json", ".md") else selection.runs
    if not folder.is_dir():
        raise UserError(f"{selection.runs}: no such folder of records")
    records = read_records(folder)
    row_name, metric = split_name(name)
    specs = [record.spec for record in records if record.spec is not None]
    if row_name.partition(":")[0] not in {spec.method.name for spec in specs}:
        if any(is_scored_row(text, records) for text in (name, row_name)):
            raise UserError(f"{row_name!r} are predictions made elsewhere and only scored here: it cannot be trained")
    if dataset is None:
        names = sorted({spec.dataset.name for spec in specs})
        if len(names) != 1:
            content = f"runs of {len(names)} datasets ({', '.join(names)})" if names else "no runs of jobs"
            raise UserError(f"{folder} holds {content}; name one with --dataset")
        dataset = names[0]
    if not is_dataset_file(dataset) and dataset not in recipe_names():
        raise UserError(f"{dataset} is not a built-in dataset: give its file, --dataset ./{dataset}.toml")
    columns = [] if metric is None else [find_column(metric)]
    board = open_board(
        dataset,
        replace(selection, runs=folder),
        columns if further_names(columns) else PAPER_COLUMNS,
        with_unranked=False,
    )
    return dataset, board.records, sorted(named_rows(board.rows, row_name), key=lambda row: row.type), metric


def split_name(text: str) -> tuple[str, str | None]:
    """Return the row, METHOD or METHOD:TYPE, and the metric of METHOD[:TYPE][:METRIC]."""
    method, *rest = text.split(":")
    feature_type = rest.pop(0) if rest and rest[0] in FEATURE_TYPES else ""
    return f"{method}:{feature_type}" if feature_type else method, ":".join(rest) if rest else None


def choose_run(board: Board, method: str | None, feature_type: str | None, seed: int | None) -> Record:
    """Return the finished run of a leaderboard that method, type and seed name.

    Without a seed the smallest that is finished is taken, without a type the first that the method has.

    Raises:
        UserError: no run fits, several do, or the one that does is not finished or rejected.
    """
    records_of_rows = [record for row in board.rows for id_ in row.runs if _row_spec(record := board.records[id_])]
    records_of_rows = [record for record in records_of_rows if record.job.method.name == method] or records_of_rows
    matches = [
        record
        for record in records_of_rows
        if method in (None, record.job.method.name)
        and feature_type in (None, record.job.type)
        and seed in (None, record.job.seed)
    ]
    criteria = {"method": method, "type": feature_type, "seed": seed}
    description = ", ".join(f"{name} {value}" for name, value in criteria.items() if value is not None)
    if not matches:
        specs = [record.job for record in records_of_rows]
        names = ", ".join(sorted(f"{spec.method.name}:{spec.type}:{spec.seed}" for spec in specs))
        raise UserError(f"no run with {description} in the newest table of {board.dataset}; there are {names}")
    if seed is None:
        matches = [record for record in matches if record.done] or matches
        smallest = min(record.job.seed for record in matches)
        matches = [record for record in matches if record.job.seed == smallest]
    if len({record.job.method.name for record in matches}) == 1:
        first = min(record.job.type for record in matches)
        matches = [record for record in matches if record.job.type == first]
    if len(matches) > 1:
        names = ", ".join(
            f"{record.label} ({', '.join(filter(None, [record.id[:12], parameters(record.job)]))})"
            for record in sorted(matches, key=lambda match: match.label)[:MAX_LISTED_RUNS]
        )
        more = f" and {len(matches) - MAX_LISTED_RUNS} more" if len(matches) > MAX_LISTED_RUNS else ""
        raise UserError(
            f"{description or board.dataset} matches {len(matches)} runs: {names}{more}; give more of row and seed"
        )
    return _require_finished(matches[0])


def parameters(spec: Spec) -> str:
    """Return a run's hyperparameters in one line."""
    return ", ".join(f"{name}={value}" for name, value in spec.method.params.items())


def _row_spec(record: Record) -> Spec:
    if record.spec is not None:
        return record.spec
    if record.scored is not None:
        raise UserError(
            f"run {record.id[:12]} is of predictions made elsewhere, which only hierbench leaderboard shows"
        )
    raise UserError(f"run {record.id[:12]} cannot be read: {'; '.join(record.findings)}")


def _require_finished(record: Record) -> Record:
    subject = f"run {record.id[:12]} ({record.label})"
    if record.state == State.REJECTED:
        raise UserError(f"{subject} is rejected: hierbench verify {record.folder.parent} says why")
    if record.state == State.DAMAGED:
        again = "hierbench run quarantines it and computes it again"
        raise UserError(f"{subject} is damaged ({', '.join(record.damaged)}); {again}")
    if not record.done:
        raise UserError(f"{subject} is not finished: {record.status.get('state')}")
    return record
