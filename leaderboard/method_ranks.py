"""The order of methods over image sets: mean ranks on a line, and bars over methods that do not differ."""

from itertools import combinations

from matplotlib.figure import Figure

from hierbench.leaderboard.columns import PAPER_BY_NAME
from hierbench.leaderboard.pictures import style
from hierbench.leaderboard.set_ranks import RankOrder

LINE = 0.19  # inches


def draw(order: RankOrder, metric: str) -> Figure:
    """Draw a critical-difference diagram (Demsar, JMLR 7, 2006; Benavoli et al., JMLR 17, 2016), the best on top."""
    num = len(order.rows)
    groups = undecided_groups(order)
    figure = style.new_figure(style.TWO_COLUMNS, 0.9 + LINE * num)
    axes = figure.subplots()
    for place, row in enumerate(order.rows):
        axes.plot([0.6, row.mean_rank], [place, place], color=style.LIGHT, linewidth=0.8, zorder=0)
        axes.plot(row.mean_rank, place, "o", color=style.BLACK)
        seconds = f", {row.seconds:.0f} s" if row.seconds == row.seconds else ""
        text = f"{row.mean_rank:.1f}{seconds}"
        axes.annotate(text, (row.mean_rank, place), (6, 0), textcoords="offset points", va="center")
    for lane, (first, last) in enumerate(groups):
        x = num + 1.4 + 0.35 * lane
        axes.plot([x, x], [first - 0.15, last + 0.15], color=style.BLUE, linewidth=2.5, solid_capstyle="butt")
    axes.set_yticks(range(num), [row.title for row in order.rows])
    axes.set_ylim(num - 0.4, -0.6)
    axes.set_xlim(0.6, num + 1.8 + 0.35 * len(groups))
    axes.set_xticks(range(1, num + 1, 2))
    title = PAPER_BY_NAME[metric].title
    axes.set_xlabel(f"mean rank by {title.lower()} over {order.n} image sets")
    style.note(axes, "blue bars: methods of which no two differ (signed-rank tests, Holm); seconds of a training")
    return figure


def undecided_groups(order: RankOrder) -> list[tuple[int, int]]:
    """Return the longest runs of neighbours, (first, last) places, in which no pair differs; two methods at least."""
    undecided = {frozenset(pair) for pair in order.undecided}
    names = [row.name for row in order.rows]

    def is_group(first: int, last: int) -> bool:
        return all(frozenset(pair) in undecided for pair in combinations(names[first : last + 1], 2))

    groups = list[tuple[int, int]]()
    for first in range(len(names)):
        last = max((last for last in range(first, len(names)) if is_group(first, last)), default=first)
        if last > first and not (groups and groups[-1][1] >= last):
            groups.append((first, last))
    return groups
