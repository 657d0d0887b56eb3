"""Columns beyond the paper's, computed from the predictions of the runs behind a table; nothing is trained."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from hierbench.leaderboard.board import Board
from hierbench.leaderboard.columns import Column, further
from hierbench.leaderboard.ranking import marked
from hierbench.leaderboard.statistics import METRICS, Cell, Row, summarise
from hierbench.runs.further_metrics import has_predictions, read_further, write_further
from hierbench.runs.store import Run, Store
from hierbench.utils.errors import UserError

Values = dict[str, float]  # NaN where a metric is undefined


def with_columns(board: Board, columns: Sequence[Column], store: Store, data_dir: Path) -> Board:
    """Return a board with these columns; metrics beyond the paper's are computed where no earlier command did.

    A cell is empty where a metric does not exist: consistency for a method that predicts classes alone, and all but the
    paper's metrics for scored predictions that rank a few classes and for records without predictions. Marks and tie
    groups are those of a table with these columns.

    Args:
        board: of runs.
        columns: from `asked_columns`.
        store: where the runs are.
        data_dir: where their data is prepared, from which the tree comes.

    Raises:
        UserError: the tree is not here or has no such level, predictions are damaged, or no row has a chosen metric.
    """
    names = further(columns)
    done = {id(row): counted_runs(row, store) for row in board.rows}
    values = measure([run for runs in done.values() for run in runs], names, store, data_dir)
    rows = []
    for row in board.rows:
        found = [values[run.folder.name] for run in done[id(row)]]
        ddof = done[id(row)][0].spec().get("evaluation", {}).get("ddof", 1) if found else 1
        rows.append(replace(row, metrics={**row.metrics, **_cells(names, found, ddof)}))
    _check_there(columns, rows)
    remark = board.remark
    if lacking := sum(not of_run.keys() >= set(names) for of_run in values.values()):
        runs = "a run that has no predictions here" if lacking == 1 else f"{lacking} runs that have no predictions here"
        remark = "; ".join(filter(None, [remark, f"not all columns could be computed of {runs}"]))
    return replace(board, rows=marked(rows, columns, board.seeds), columns=tuple(columns), remark=remark)


def counted_runs(row: Row, store: Store) -> list[Run]:
    """Return the runs behind a row's values, in their order: those that are finished and were not rejected."""
    runs = [run for run in map(store.run, row.runs) if run.done]
    return runs if row.scored else [run for run in runs if run.spec()["seed"] in row.seeds]


def measure(runs: Sequence[Run], names: Sequence[str], store: Store, data_dir: Path) -> dict[str, Values]:
    """Return {id: {metric: value}} of finished runs, without those that would have to be computed from no predictions.

    What is computed is kept beside the run, so that the next table only reads it. Errors are those of `with_columns`.
    """
    found = {run.folder.name: read_further(run, store) if names else {} for run in runs}
    missing = [run for run in runs if not found[run.folder.name].keys() >= set(names) and has_predictions(run)]
    if missing:
        _compute(missing, names, store, data_dir, found)
    return found


def _compute(runs: Sequence[Run], names: Sequence[str], store: Store, data_dir: Path, found: dict[str, Values]) -> None:
    """Add the values that are not there yet to `found`, and keep them."""
    from hierbench.metrics.registry import compute_metrics, find_metric  # PyTorch: kept values do without
    from hierbench.runs.evidence import Trees, evidence_of
    from hierbench.utils.console import Meter

    trees = Trees(data_dir)
    with Meter("metrics", float(len(runs))) as meter:
        for run in runs:
            tree, known = trees.of(run), found[run.folder.name]
            needed = [name for name in names if name not in known]
            for name in needed:
                find_metric(name, tree)
            evidence = evidence_of(run, store, tree)
            if evidence is None:
                known |= dict.fromkeys(needed, float("nan"))
            else:
                known |= compute_metrics(needed, evidence)
            write_further(run, store, known)
            meter.end_part(run.folder.name, 1.0)


def _cells(names: Sequence[str], found: Sequence[Values], ddof: int) -> dict[str, Cell]:
    """Return the cells of a row from the values of its runs; empty ones where not all runs have them."""
    there = {name for name in names if found and all(name in of_run for of_run in found)}
    return {
        name: summarise([of_run[name] for of_run in found], ddof) if name in there else Cell(None, None)
        for name in names
    }


def _check_there(columns: Sequence[Column], rows: Sequence[Row]) -> None:
    """Raise a UserError if no row has any of the columns, as where only HierDist@20 is asked of ten classes."""
    names = [column.name for column in columns]
    if not any(name in row.metrics for name in names for row in rows):
        raise UserError(f"no row of this table has {' or '.join(name for name in names if name in METRICS)}")
