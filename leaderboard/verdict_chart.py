"""The verdict in one picture: each claim's values by image set, its estimate with interval, and what follows."""

from textwrap import wrap

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hierbench.leaderboard.pictures import style
from hierbench.leaderboard.verdict import PartResult, VerdictRows

ROW_HEIGHT = 0.3  # inches
VERDICT_COLOURS = {"yes": style.GREEN, "no": style.VERMILION, "open": style.GREY}
UNITS = {"% of the reference": "less than the reference, %", "points": "accuracy gained + 0.5, points"}
WIDTH = 44  # characters of a line of a claim
EDGE = 1.06  # of the largest value shown


def draw(evidence: VerdictRows) -> Figure:
    """Draw severity and distances on the left, accuracies on the right; sets that decide are filled."""
    results = evidence.claims
    figure = style.new_figure(style.TWO_COLUMNS, 1.0 + 2 * ROW_HEIGHT * len(results))
    severities, accuracies = figure.subplots(1, 2, sharey=True, width_ratios=(3, 2))
    verdicts = [evidence.verdict_of(result) for result in results]
    for row, (result, verdict) in enumerate(zip(results, verdicts, strict=True)):
        for part in result.parts:
            _draw_part(
                accuracies if part.unit == "points" else severities, part, row, VERDICT_COLOURS[verdict], evidence
            )
    for axes, unit in ((severities, "% of the reference"), (accuracies, "points")):
        axes.axvline(0.0, color=style.GREY, linewidth=0.8)
        axes.set_xlabel(UNITS[unit])
        parts = [part for result in results for part in result.parts if part.unit == unit]
        largest = max((abs(value) for part in parts for value in part.values.values()), default=1.0)
        axes.set_xlim(-EDGE * largest, EDGE * largest)
    labels = ["\n".join(wrap(f"({result.claim.id}) {result.claim.claim}", WIDTH)) for result in results]
    severities.set_yticks(range(len(results)), labels)
    severities.set_ylim(len(results) - 0.5, -0.5)
    for row, (result, verdict) in enumerate(zip(results, verdicts, strict=True)):
        accuracies.annotate(
            f"{verdict} ({result.n} sets)",
            (1.02, row),
            xycoords=accuracies.get_yaxis_transform(),
            va="center",
            color=VERDICT_COLOURS[verdict],
            fontsize=style.SMALL_TYPE,
        )
    title = f"{verdicts.count('yes')} of {len(results)} claims hold on image sets on which none was chosen"
    num_waiting = sum(not evidence.is_settled(result) for result in results)
    title += f"; {num_waiting} {'waits' if num_waiting == 1 else 'wait'} for runs" * bool(num_waiting)
    figure.suptitle(title, x=0.02, ha="left")
    style.note(severities, "dots: sets that decide (filled) and seen ones; bar: Hodges-Lehmann estimate, 95% interval")
    return figure


def _draw_part(axes: Axes, part: PartResult, row: int, colour: str, evidence: VerdictRows) -> None:
    for data, value in part.values.items():
        face = style.GREY if data in evidence.protocol.decide else "white"
        axes.plot(value, row + 0.18, "o", color=style.GREY, markerfacecolor=face, markersize=3.2, linestyle="none")
    if part.test.n:
        axes.plot([part.test.low, part.test.high], [row - 0.15] * 2, color=colour, linewidth=2.2)
        axes.plot(part.test.effect, row - 0.15, "D", color=colour, markersize=4.2)
