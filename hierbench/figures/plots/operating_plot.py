"""Risk over coverage where a prediction may stop at an inner node: the climbing rule's operating curves."""

from collections.abc import Sequence
from pathlib import Path

from hierbench.figures.plots import style
from hierbench.figures.plots.figure_data import (
    CLIMBING,
    COVERAGES,
    FigureRequest,
    Floats,
    heading,
    open_figure_board,
    over_runs,
    remarks_on,
    risk_over_coverage,
)
from hierbench.leaderboard.extra_columns import counted_runs, measure
from hierbench.leaderboard.statistics import summarise
from hierbench.leaderboard.table import Interval
from hierbench.runs.record import Record
from hierbench.runs.records import Records
from hierbench.runs.run_evidence import Trees, read_evidence
from hierbench.utils.console import Meter
from hierbench.utils.errors import UserError


def draw(request: FigureRequest) -> style.Drawing:
    """Draw the curves; those with the five least areas below them are named, the others grey."""
    board = open_figure_board(request)
    runs = {row.key: counted_runs(row, board.records) for row in board.rows}
    shown = [row for row in board.rows if row.n and all(run.has_predictions for run in runs[row.key])]
    if not shown:
        raise UserError(f"the runs of {request.dataset} have no predictions.npz: published records have none")
    shown_runs = [run for row in shown for run in runs[row.key]]
    areas = measure(shown_runs, [CLIMBING], board.records, request.data_dir)
    curves = _curves(shown_runs, board.records, request.data_dir)
    mean_areas = {row.key: summarise([areas[run.id][CLIMBING] for run in runs[row.key]], 1) for row in shown}
    shown.sort(key=lambda row: mean_areas[row.key].mean or 0.0)
    figure = style.new_figure(style.TWO_COLUMNS, 3.4)
    axes = figure.subplots()
    ends = []
    for i, row in enumerate(shown):
        mean, half_width = over_runs([curves[run.id] for run in runs[row.key]], runs[row.key][0].job.evaluation.ddof)
        colour = style.LINE_COLOURS[i] if i < style.MOST_COLOURED else style.LIGHT
        axes.plot(COVERAGES, mean, color=colour, zorder=2 if i < style.MOST_COLOURED else 1)
        if i < style.MOST_COLOURED:
            axes.fill_between(COVERAGES, mean - half_width, mean + half_width, color=colour, alpha=0.15, linewidth=0)
            area = Interval(mean_areas[row.key].mean, mean_areas[row.key].ci95, 4)
            ends.append((float(mean[-1]), f"{style.plain(row.title)}, {row.type}: {area}", colour))
    axes.set_xlim(0.0, 1.0)
    axes.set_ylim(bottom=0.0)
    style.name_lines(axes, ends)
    axes.set_xlabel("coverage (0: the root, 1: a class)")
    axes.set_ylabel("risk (share of test images with a wrong node)")
    axes.set_title(f"{heading(board, request.dataset)}. Mean over seeds, bands: 95% t-interval", loc="left", pad=14)
    about = "at the lines: hAURC, the area under the curve; grey: rows with a larger one"
    axes.text(0.0, 1.01, about, transform=axes.transAxes, **style.SMALL_NOTE)
    absent = [row for row in board.rows if row.n and row not in shown]
    return style.Drawing(figure, remarks_on(board, absent, "no predictions.npz"))


def _curves(runs: Sequence[Record], records: Records, data_dir: Path) -> dict[str, Floats]:
    """Return {id: risks [G]} of finished runs."""
    trees = Trees(data_dir)
    curves = dict[str, Floats]()
    with Meter("operating curves", float(len(runs))) as meter:
        for run in runs:
            parts = read_evidence(run, records, trees.of(run.job.dataset))
            if parts is None:
                raise UserError(f"run {run.id[:12]} ranks a few classes alone")
            curves[run.id] = risk_over_coverage(parts)
            meter.end_part(run.id, 1.0)
    return curves
