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
from hierbench.runs.record import Record, Records
from hierbench.runs.run_evidence import Trees, read_evidence
from hierbench.utils.console import Meter
from hierbench.utils.errors import UserError

POINTS_PER_MARKER = 10  # points between markers on a line
LEGEND_LINE = 0.15  # inches of a legend's line


def draw(request: FigureRequest) -> style.Drawing:
    """Draw a panel per type of model, in it a curve per method; the legends have the areas under them."""
    board = open_figure_board(request)
    runs = {row.key: counted_runs(row, board.records) for row in board.rows}
    shown = [row for row in board.rows if row.n and all(run.has_predictions for run in runs[row.key])]
    if not shown:
        raise UserError(f"the runs of {request.dataset} have no predictions.npz: published records have none")
    shown_runs = [run for row in shown for run in runs[row.key]]
    areas = measure(shown_runs, [CLIMBING], board.records, request.data_dir)
    curves = _curves(shown_runs, board.records, request.data_dir)
    types = list(dict.fromkeys(row.type for row in shown))
    looks = style.assign_looks(shown)
    most = max(sum(row.type == kind for row in shown) for kind in types)
    figure = style.new_figure(style.TWO_COLUMNS, 3.2 + LEGEND_LINE * (most + 1))
    panels = figure.subplots(1, len(types), sharex=True, sharey=True, squeeze=False)[0]
    for axes, kind in zip(panels, types, strict=True):
        for i, row in enumerate(row for row in shown if row.type == kind):
            row_runs = runs[row.key]
            ddof = row_runs[0].job.evaluation.ddof
            mean, half_width = over_runs([curves[run.id] for run in row_runs], ddof)
            area = summarise([areas[run.id][CLIMBING] for run in row_runs], ddof)
            line = style.line_style(looks[style.look_key(row)])
            band = {"color": line["color"], "alpha": 0.15, "linewidth": 0}
            axes.fill_between(COVERAGES, mean - half_width, mean + half_width, **band)
            label = f"{style.plain(row.title)}: {Interval(area.mean, area.ci95, 4)}"
            axes.plot(COVERAGES, mean, markevery=(i * 2, POINTS_PER_MARKER), label=label, **line)
        axes.set_title(kind, loc="left")
        axes.set_xlabel("coverage (0: the root, 1: a class)")
        below = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.14), "title_fontsize": style.SMALL_TYPE}
        axes.legend(title="hAURC, the area under the curve", **below)
    panels[0].set_ylabel("risk (share of test images with a wrong node)")
    panels[0].set_xlim(0.0, 1.0)
    panels[0].set_ylim(bottom=0.0)
    figure.suptitle(f"{heading(board, request.dataset)}. Mean over seeds, bands: 95% t-interval", fontsize=8.0)
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
