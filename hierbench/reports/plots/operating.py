"""Risk over coverage where a prediction may stop at an inner node: the climbing rule's operating curves."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from hierbench.leaderboard.measured import measure
from hierbench.leaderboard.statistics import Cell, Row, summarise
from hierbench.leaderboard.table import Interval
from hierbench.reports.plots import style
from hierbench.reports.plots.source import Request, board_of, finished_runs, heading, remarks_on
from hierbench.reports.selection import CLIMBING, COVERAGES, risk_over_coverage
from hierbench.runs.evidence import Trees, evidence_of
from hierbench.runs.further_metrics import has_predictions
from hierbench.runs.store import Run
from hierbench.utils.console import Meter
from hierbench.utils.errors import UserError

Floats = NDArray[np.float64]
MARKS = 10  # points between markers on a line
LINE = 0.15  # inches of a legend's line


def band_of(curves: Sequence[Floats], ddof: int) -> Floats:
    """Return [2, G], mean and half-width of the interval over runs (NaN for one run), from the curves [G] of each."""
    cells = [summarise(values, ddof) for values in np.stack(curves).T.tolist()]
    return np.array([[cell.mean for cell in cells], [cell.ci95 for cell in cells]], dtype=np.float64)


def draw(request: Request) -> style.Drawing:
    """Draw a panel per type of model, in it a curve per method; the legends have the areas under them."""
    board = board_of(request)
    runs = {id(row): finished_runs(request, row) for row in board.rows}
    shown = [row for row in board.rows if row.n and all(map(has_predictions, runs[id(row)]))]
    if not shown:
        raise UserError(f"the runs of {request.dataset} have no predictions.npz: published records have none")
    of_shown = [run for row in shown for run in runs[id(row)]]
    areas = measure(of_shown, [CLIMBING], request.store, request.data_dir)
    curves = _curves(request, of_shown)
    types = list(dict.fromkeys(row.type for row in shown))
    looks = style.looks_of(shown)
    most = max(sum(row.type == kind for row in shown) for kind in types)
    figure = style.new_figure(style.DOUBLE, 3.2 + LINE * (most + 1))
    panels = figure.subplots(1, len(types), sharex=True, sharey=True, squeeze=False)[0]
    for axes, kind in zip(panels, types, strict=True):
        for i, row in enumerate(row for row in shown if row.type == kind):
            of_row = runs[id(row)]
            ddof = of_row[0].spec().get("evaluation", {}).get("ddof", 1)
            band = band_of([curves[run.folder.name] for run in of_row], ddof)
            area = summarise([areas[run.folder.name][CLIMBING] for run in of_row], ddof)
            _curve(axes, row, band, area, looks[style.key_of(row)], i)
        axes.set_title(kind, loc="left")
        axes.set_xlabel("coverage (0: the root, 1: a class)")
        below = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.14), "title_fontsize": style.SMALL}
        axes.legend(title="hAURC, the area under the curve", **below)
    panels[0].set_ylabel("risk (share of test images with a wrong node)")
    panels[0].set_xlim(0.0, 1.0)
    panels[0].set_ylim(bottom=0.0)
    figure.suptitle(f"{heading(board, request.dataset)}. Mean over seeds, bands: 95% t-interval", fontsize=8.0)
    absent = [row for row in board.rows if row.n and row not in shown]
    return style.Drawing(figure, remarks_on(board, absent, "no predictions.npz"))


def _curves(request: Request, runs: Sequence[Run]) -> dict[str, Floats]:
    """Return {id: risks [G]} of finished runs."""
    store, trees, curves = request.store, Trees(request.data_dir), dict[str, Floats]()
    with Meter("operating curves", float(len(runs))) as meter:
        for run in runs:
            evidence = evidence_of(run, store, trees.of(run))
            assert evidence is not None, "a board of runs has no scored predictions"
            curves[run.folder.name] = risk_over_coverage(evidence)
            meter.end_part(run.folder.name, 1.0)
    return curves


def _curve(axes: Axes, row: Row, band: Floats, area: Cell, look: style.Look, position: int) -> None:
    mean, half_width = band
    axes.fill_between(COVERAGES, mean - half_width, mean + half_width, color=look.colour, alpha=0.15, linewidth=0)
    label = f"{style.plain(row.title)}: {Interval(area.mean, area.ci95, 4)}"
    axes.plot(COVERAGES, mean, markevery=(position * 2, MARKS), label=label, **style.line_of(look))
