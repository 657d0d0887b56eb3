"""All tables in one picture: each row's difference from cross-entropy of its type, a marker per table."""

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from hierbench.config.recipe import image_dataset
from hierbench.figures.plots import style
from hierbench.leaderboard.columns import Column
from hierbench.leaderboard.overview_table import TableSummary

MOST_NAMED = 40  # characters of a table's name in the legend
PALETTE = (style.BLACK, style.BLUE, style.VERMILION, style.GREEN, style.ORANGE, style.PURPLE, style.SKY)
MARKERS = "o^sDvPX<>h"
LANE = 0.055  # inches; a row has a lane for each of its tables
LEAST_LANES = 3  # of a row, for its name


def draw(tables: Sequence[TableSummary], column: Column) -> Figure:
    """Draw the differences with their 95% intervals, filled where a table has an arrow.

    Tables of the same images share a colour, and differ in their markers.
    """
    tests = [{name: gap for (name, metric), gap in seen.tests.items() if metric == column.name} for seen in tables]
    order = list(dict.fromkeys(name for gaps in tests for name in gaps))
    names = sorted(order, key=lambda name: (name.partition(":")[2], order.index(name)), reverse=True)
    lanes = {name: max(LEAST_LANES, sum(name in gaps for gaps in tests)) + 1 for name in names}
    tops = {name: sum(lanes[other] for other in names[: place + 1]) for place, name in enumerate(names)}
    height = max(tops.values(), default=1)
    figure = style.new_figure(style.TWO_COLUMNS, 1.3 + LANE * height)
    axes = figure.subplots()
    axes.axvline(0.0, color=style.GREY, linewidth=0.8)
    lane_of = {name: top - 1 for name, top in tops.items()}
    tables_by_images: dict[str, list[str]] = {}
    for seen, gaps in zip(tables, tests, strict=True):
        dataset = seen.board.dataset
        tables_by_images.setdefault(image_dataset(dataset), []).append(dataset)
        colour = PALETTE[list(tables_by_images).index(image_dataset(dataset)) % len(PALETTE)]
        marker = MARKERS[(len(tables_by_images[image_dataset(dataset)]) - 1) % len(MARKERS)]
        label = style.plain(f"{dataset}, {seen.trained}", MOST_NAMED)
        look: dict[str, Any] = {"color": colour, "marker": marker, "markersize": 3.5}
        axes.plot([], [], markerfacecolor="white", linewidth=0.7, label=label, **look)
        for name, gap in gaps.items():
            axes.errorbar(
                gap.mean,
                lane_of[name],
                xerr=gap.ci95,
                markerfacecolor=colour if gap.significant else "white",
                elinewidth=0.7,
                **look,
            )
            lane_of[name] -= 1
    for name in names[:-1]:
        axes.axhline(tops[name], color=style.LIGHT, linewidth=0.4, zorder=0)
    rows = {name: seen.rows[name] for seen in tables for name in seen.rows}
    centres = [tops[name] - lanes[name] / 2 for name in names]
    axes.set_yticks(centres, [style.plain(f"{rows[name].title}, {rows[name].type}") for name in names])
    axes.set_ylim(0, height)
    better = "right" if column.higher else "left"
    axes.set_xlabel(f"{column.title.lower()} minus cross-entropy's, same type; {better} is better")
    style.note(axes, "whiskers: 95% intervals by seed; filled: significant in its table; a colour per dataset")
    figure.legend(loc="outside lower center", ncols=3)
    return figure
