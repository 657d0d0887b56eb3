"""Columns beyond the paper's, computed from the predictions of the runs behind a table; nothing is trained."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from hierbench.leaderboard.board_data import BoardData
from hierbench.leaderboard.columns import COSTS, PAPER_COLUMNS, Column, further_names
from hierbench.leaderboard.ranking import mark_rows
from hierbench.leaderboard.statistics import PAPER_METRICS, Row, Summary, summarise
from hierbench.runs.further_metrics import Values, read_further, write_further
from hierbench.runs.record import Record
from hierbench.runs.records import Records
from hierbench.utils.errors import UserError

AnyBoard = TypeVar("AnyBoard", bound=BoardData)


def with_columns(board: AnyBoard, columns: Sequence[Column], data_dir: Path) -> AnyBoard:
    """Return a board with these columns and the place of its data.

    Metrics beyond the paper's are computed where no earlier command did.

    A cell is empty where a metric does not exist: consistency for a method that predicts classes alone, and all but the
    paper's metrics for scored predictions that rank a few classes and for records without predictions. Marks are
    those of a table with these columns.

    Args:
        board: of runs.
        columns: from `requested_columns`.
        data_dir: where their data is prepared, from which the tree comes.

    A run with damaged predictions is reported and not counted.

    Raises:
        UserError: the tree is not here or has no such level, or no row has a chosen metric.
    """
    board = replace(board, data_dir=data_dir)
    if tuple(columns) == PAPER_COLUMNS:
        return board
    names = further_names(columns)
    damaged = dict[str, str]()
    done = {row.key: counted_runs(row, board.records) for row in board.rows}
    values = measure([run for runs in done.values() for run in runs], names, board.records, data_dir, damaged)
    if damaged:
        board = replace(board, rows=tuple(_drop_runs(row, damaged, done[row.key], board.seeds) for row in board.rows))
        done = {
            row.key: [run for run in counted_runs(row, board.records) if run.id not in damaged] for row in board.rows
        }
    rows = []
    shown = [column.name for column in columns]
    for row in board.rows:
        run_values = [values[run.id] for run in done[row.key]]
        spec = done[row.key][0].spec if run_values else None
        ddof = 1 if spec is None else spec.evaluation.ddof
        costs = [name for name in shown if name in COSTS]
        run_costs = [recorded_costs(run, board.records) for run in done[row.key]]
        cells = {**_cells(names, run_values, ddof), **_cells(costs, run_costs, ddof)}
        rows.append(replace(row, metrics={**row.metrics, **cells}))
    if not any(name in row.metrics for name in shown for row in rows):  # as for only HierDist@20, with ten classes
        raise UserError(f"no row of this table has {' or '.join(name for name in shown if name in PAPER_METRICS)}")
    remarks = list(board.remarks)
    claimed = claimed_metrics(names, [run for runs in done.values() for run in runs])
    if claimed:
        subject = f"{', '.join(claimed)} {'is' if len(claimed) == 1 else 'are'} claimed"
        remarks.append(f"{subject}: not computed from the predictions here, and not ranked")
    remarks += [f"a run is not counted: {error}" for error in damaged.values()]
    lacking = sum(not metrics.keys() >= set(names) for metrics in values.values())
    if lacking:
        runs = "a run that has no predictions here" if lacking == 1 else f"{lacking} runs that have no predictions here"
        remarks.append(f"not all columns could be computed of {runs}")
    columns = tuple(replace(column, claimed=column.name in claimed or column.name in COSTS) for column in columns)
    return replace(board, rows=mark_rows(rows, columns), columns=columns, remarks=tuple(remarks))


def recorded_costs(run: Record, records: Records) -> dict[str, float]:
    """Return the recorded `COSTS` of a run, or of the base that it re-ranks; training took as long as its command."""
    base = next((records[name] for name in run.bases if name in records), run)
    cost = (run if "cost" in run.environment else base).environment.get("cost", {})
    costs = {**(cost if isinstance(cost, dict) else {}), "training_seconds": base.seconds}
    return {name: float(costs[name]) for name in COSTS if isinstance(costs.get(name), int | float)}


def _drop_runs(row: Row, damaged: Mapping[str, str], runs: Sequence[Record], seeds: Sequence[int]) -> Row:
    """Return a row of `runs`, without its damaged ones, and with the seeds that it now lacks."""
    kept = [place for place, run in enumerate(runs) if run.id not in damaged]
    if len(kept) == len(runs):
        return row
    ddof = 1 if runs[0].spec is None else runs[0].spec.evaluation.ddof
    metrics = {name: summarise([cell.values[place] for place in kept], ddof) for name, cell in row.metrics.items()}
    kept_seeds = tuple(row.seeds[place] for place in kept)
    lacking = tuple(seed for seed in seeds if seed not in kept_seeds)
    return replace(row, n=len(kept), seeds=kept_seeds, metrics=metrics, lacking=lacking)


def claimed_metrics(names: Sequence[str], runs: Sequence[Record]) -> list[str]:
    """Return the metrics that no predictions of some runs give: published ones are the best-ranked classes alone."""
    if not names or all(run.has_predictions for run in runs):
        return []
    from hierbench.metrics.metric_table import follows_from_ranks

    return [name for name in names if not follows_from_ranks(name)]


def counted_runs(row: Row, records: Records) -> list[Record]:
    """Return the runs behind a row's values, in their order: finished and not rejected."""
    runs = [run for run in map(records.get, row.runs) if run is not None and run.done]
    return runs if row.scored else [run for run in runs if run.job.seed in row.seeds]


def measure(
    runs: Sequence[Record],
    names: Sequence[str],
    records: Records,
    data_dir: Path,
    damaged: dict[str, str] | None = None,
) -> dict[str, Values]:
    """Return {id: {metric: value}} of finished runs; values that need missing predictions are left out.

    Values are kept in the user's cache, and the next table only reads them. Errors are those of `with_columns`;
    {id: error} of runs whose predictions are damaged goes to `damaged`; without it, such a run is an error too.
    """
    from hierbench.metrics.metric_table import user_metrics

    kept = {run.id: read_further(run, records) if names else {} for run in runs}
    # The metric of a user's file may have changed: it is computed each time.
    values_by_run = {
        run_id: {name: value for name, value in values.items() if name not in user_metrics}
        for run_id, values in kept.items()
    }
    missing = [run for run in runs if not values_by_run[run.id].keys() >= set(names) and run.has_predictions]
    if not missing:
        return values_by_run
    from hierbench.metrics.metric_table import compute_in_parts, find_metric  # PyTorch: kept values do without
    from hierbench.runs.run_evidence import Trees, read_evidence
    from hierbench.utils.console import Meter

    trees = Trees(data_dir)
    with Meter("metrics", float(len(missing))) as meter:
        for run in missing:
            tree = trees.of(run.data)
            run_metrics = values_by_run[run.id]
            needed = [name for name in names if name not in run_metrics]
            for name in needed:
                find_metric(name, tree)
            try:
                parts = read_evidence(run, records, tree)
            except UserError as error:
                if damaged is None:
                    raise
                damaged[run.id] = str(error)
                continue
            if parts is None:
                run_metrics |= dict.fromkeys(needed, float("nan"))
            else:
                run_metrics |= compute_in_parts(needed, parts)
            write_further(
                run, records, {name: value for name, value in run_metrics.items() if name not in user_metrics}
            )
            meter.end_part(run.id, 1.0)
    return values_by_run


def _cells(names: Sequence[str], run_values: Sequence[Values], ddof: int) -> dict[str, Summary]:
    """Return the cells of a row from the values of its runs; empty ones where not all runs have them."""
    complete_names = {name for name in names if run_values and all(name in metrics for metrics in run_values)}
    return {
        name: summarise([metrics[name] for metrics in run_values], ddof)
        if name in complete_names
        else Summary(None, None)
        for name in names
    }
