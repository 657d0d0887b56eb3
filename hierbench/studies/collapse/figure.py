"""The figure of neural collapse over the epochs, of HAFrame and of cross-entropy, whose ideal is an ETF."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hierbench.config.recipe import Recipe
from hierbench.leaderboard.pictures.style import BLUE, LIGHT, ONE_COLUMN, VERMILION, new_figure, plain
from hierbench.studies.collapse.collapse_curves import FRAMES, Curve, mean_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HEIGHT = 5.6  # inches
COLOURS = {"HAFrame": BLUE, "ETF": VERMILION}  # the paper's blue and red, in a red that the colour-blind tell apart
MARKER_BY_FRAME = {"HAFrame": "o", "ETF": "s"}
DASHES: dict[str, Any] = {"features": "-", "classifiers": (0, (4, 1.6)), "self_duality": "-"}
MARKERS_PER_LINE = 8  # markers on a line, about: far enough apart to see that a line is dashed


def draw(recipe: Recipe, curves: Sequence[Curve]) -> Figure:
    """Draw the curves as the paper's figure has them; of several seeds the mean, and the range as a band.

    Call it within `hierbench.leaderboard.pictures.style.house_style`.
    """
    from matplotlib.ticker import MaxNLocator

    seeds = len({curve.seed for curve in curves})
    title = f"{recipe.title}, protocol {recipe.protocol}" + (f", {seeds} seeds" if seeds > 1 else "")
    figure = new_figure(ONE_COLUMN, HEIGHT)
    deviation = "|cos − ideal|" if recipe.collapse.deviation == "absolute" else "(cos − ideal)"
    square = "" if recipe.collapse.self_duality == "norm" else "²"
    means = {"features": "features_mean", "classifiers": "classifiers_mean"}
    stds = {"features": "features_std", "classifiers": "classifiers_std"}
    panels = [
        (means, "angular collapse: mean over pairs of classes", "mean of |cos − ideal|"),
        (stds, "angular collapse: standard deviation", f"std of {deviation}"),
        ({"self_duality": "self_duality"}, "self-duality of classifier and features", f"‖W/‖W‖ − H/‖H‖‖{square}"),
    ]
    rows: list[Axes] = list(figure.subplots(len(panels), 1, sharex=True))
    for axes, panel in zip(rows, panels, strict=True):
        _draw_panel(axes, curves, *panel)
    handles, labels = rows[0].get_legend_handles_labels()
    legend = figure.legend(handles, labels, loc="outside upper center", ncols=2, handlelength=3.4)
    legend.set_title(f"{plain(title, 60)}\nideal of cross-entropy: a simplex ETF")
    rows[-1].set_xlabel("epoch")
    rows[-1].xaxis.set_major_locator(MaxNLocator("auto", integer=True, steps=[1, 2, 5, 10]))
    figure.align_ylabels(rows)
    return figure


def _draw_panel(axes: Axes, curves: Sequence[Curve], quantities: dict[str, str], title: str, label: str) -> None:
    """Draw one row of the figure; `quantities` are {subject: quantity}, `label` is that of the vertical axis."""
    for frame in FRAMES:
        for subject, quantity in quantities.items():
            line = mean_line(curves, frame, quantity)
            if line is None:
                continue
            colour = COLOURS[frame.name]
            num = len(line.epochs)
            marked = range(num - 1, -1, -max(1, round(num / MARKERS_PER_LINE)))  # the last is one of them
            if line.low != line.high:
                axes.fill_between(line.epochs, line.low, line.high, color=colour, alpha=0.15, linewidth=0)
            axes.plot(
                line.epochs,
                line.mean,
                color=colour,
                linestyle=DASHES[subject],
                marker=MARKER_BY_FRAME[frame.name],
                markerfacecolor=colour if subject != "classifiers" else "white",
                markersize=3.5,
                markevery=list(marked)[::-1],
                label=f"{frame.title}, {subject}",
            )
    axes.set_title(title, loc="left")
    axes.set_ylabel(label)
    axes.grid(axis="y", color=LIGHT, linewidth=0.4)
    axes.set_axisbelow(True)
    axes.margins(y=0.08)
    bottom, top = axes.get_ylim()
    axes.set_ylim(min(bottom, -0.04 * top), top)  # zero, the limit of collapse, must be visible
