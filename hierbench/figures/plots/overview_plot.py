"""All tables in one picture: each row's difference from cross-entropy of its type, a marker per table."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from hierbench.figures.plots import style
from hierbench.leaderboard.columns import Column
from hierbench.leaderboard.overview_table import TableSummary

MOST_NAMED = 40  # characters of a table's name in the legend


def draw(tables: Sequence[TableSummary], column: Column) -> Figure:
    """Draw the differences with their 95% intervals; filled are those with an arrow in their table."""
    names = list(dict.fromkeys(name for seen in tables for name, metric in seen.tests if metric == column.name))
    order = {name: place for place, name in enumerate(names)}
    names.sort(key=lambda name: (name.partition(":")[2], order[name]), reverse=True)
    figure = style.new_figure(style.TWO_COLUMNS, 1.2 + 0.2 * len(names))
    axes = figure.subplots()
    axes.axvline(0.0, color=style.GREY, linewidth=0.8)
    step = 0.7 / max(len(tables), 1)
    for number, (seen, look) in enumerate(zip(tables, [*style.LOOKS.values(), *style.SPARE], strict=False)):
        label = style.plain(f"{seen.board.dataset}, {seen.trained}", MOST_NAMED)
        for place, name in enumerate(names):
            gap = seen.tests.get((name, column.name))
            if gap is not None:
                axes.errorbar(
                    gap.mean,
                    place + 0.35 - (number + 0.5) * step,
                    xerr=gap.ci95,
                    color=look.colour,
                    marker=look.marker,
                    markersize=3.5,
                    markerfacecolor=look.colour if gap.significant else "white",
                    elinewidth=0.7,
                    label=label,
                )
                label = "_"  # once in the legend
    for place in range(1, len(names)):
        axes.axhline(place - 0.5, color=style.LIGHT, linewidth=0.4, zorder=0)
    rows = {name: seen.rows[name] for seen in tables for name in seen.rows}
    axes.set_yticks(range(len(names)), [style.plain(f"{rows[name].title}, {rows[name].type}") for name in names])
    axes.set_ylim(-0.5, len(names) - 0.5)
    better = "right" if column.higher else "left"
    axes.set_xlabel(f"{column.title.lower()} minus cross-entropy's, same type; {better} is better")
    style.note(axes, "whiskers: 95% intervals by seed; filled: significant in its table")
    figure.legend(loc="outside lower center", ncols=2)
    return figure
