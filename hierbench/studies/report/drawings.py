"""The pictures of a report as SVG: 360 units wide, so that their words can be read on a telephone, too.

Colours are variables of the page, with one set for dark screens.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from hierbench.studies.report.mistakes import Branch
from hierbench.studies.report.report_numbers import ReportNumbers
from hierbench.studies.report.sentences import TITLES, number
from hierbench.utils.errors import unknown_name
from hierbench.utils.text import one_line

DRAWING_WIDTH = 360.0
COLORS = """:root{color-scheme:light dark;--paper:#fff;--panel:#f3f5f7;--ink:#1a1f25;--soft:#55606b;--line:#cdd5dc;
--one:#0a5f9e;--two:#a84300;--three:#5b3fa8;--e0:#e3eef6;--e1:#bfd9ec;--e2:#f3cfa9;--e3:#e59a5c;--e4:#c95f2b;--on:#111}
@media(prefers-color-scheme:dark){:root{--paper:#14171b;--panel:#1d2228;--ink:#e8ebee;--soft:#a9b3bd;--line:#3a424c;
--one:#7cc0f5;--two:#ffa66b;--three:#b9a3f5;--e0:#23455f;--e1:#2e668f;--e2:#7a5330;--e3:#9a5a28;--e4:#b5541f;--on:#fff}}"""
ERRORS = (5.0, 10.0, 20.0, 40.0)  # per cent of errors between which the colours of the icicle change
ICICLE_HEIGHT = 420.0
CHARACTER = 5.6  # units of a character of 10 units on average
ROW = 22.0
MIDDLE = 230.0  # of the differences
HALF_WIDTH = 105.0
LEFT_EDGE = 34.0  # of the curves
RIGHT_MARGIN = 12.0
TOP = 8.0
BOTTOM = 250.0
LINES = ("one", "two", "three")
NAMED_AT = {"one": 0.3, "two": 0.55, "three": 0.75}  # the share of information at which a line has its name


@dataclass(frozen=True)
class ReportDrawing:
    """A picture: its class and its SVG."""

    kind: str
    svg: str

    def _repr_svg_(self) -> str:
        style = f"<style>{COLORS.replace(':root', f'svg.{self.kind}')}</style>"  # a notebook's own colours stay
        return self.svg.replace("<svg ", "<svg style='max-width:40rem' ", 1).replace("<title>", f"{style}<title>", 1)

    def __str__(self) -> str:
        return self._repr_svg_()


def figure_of(report: ReportNumbers, part: str) -> ReportDrawing:
    """Return a picture of a report: "mistakes", "rules" or "against"; a UserError for another, or without its part."""
    makers = {"mistakes": icicle, "rules": answers, "against": differences}
    if part not in makers:
        raise unknown_name("picture", part, makers)
    return makers[part](report)


def _svg(name: str, about: str, height: float, content: Sequence[str]) -> ReportDrawing:
    head = (
        f'<svg class="{name}" viewBox="0 0 {DRAWING_WIDTH:g} {height:g}" role="img" xmlns="http://www.w3.org/2000/svg" '
    )
    font = 'font-family="system-ui,sans-serif" font-size="10" fill="var(--ink)">'
    return ReportDrawing(name, f"{head}{font}<title>{escape(about)}</title>{''.join(content)}</svg>")


def shade(branch: Branch) -> int:
    """Return the colour of a branch, 0 to 4, by its share of errors."""
    return int(np.searchsorted(ERRORS, 100.0 - branch.accuracy, side="right"))


def icicle(report: ReportNumbers) -> ReportDrawing:
    """Return the tree of at most three levels: heights are images, colours errors."""
    columns = report.mistakes.icicle()
    total = sum(branch.n for branch in columns[0])
    width = DRAWING_WIDTH / len(columns)
    tops: list[list[float]] = []
    content = list[str]()
    for number_of_column, branches in enumerate(columns):
        used = dict[int, float]()
        places = list[float]()
        for branch in branches:
            start = tops[-1][branch.parent] if branch.parent >= 0 else 0.0
            top = start + used.get(branch.parent, 0.0)
            height = ICICLE_HEIGHT * branch.n / total
            used[branch.parent] = used.get(branch.parent, 0.0) + height
            places.append(top)
            x = width * number_of_column
            about = (
                f"{branch.name}: {branch.n:,} images, {100 - branch.accuracy:.1f} % wrong, "
                f"{number(branch.severity)} edges a mistake"
            )
            content.append(
                f'<rect x="{x:.1f}" y="{top:.1f}" width="{width - 1.5:.1f}" height="{max(height - 0.8, 0.4):.1f}" '
                f'fill="var(--e{shade(branch)})"><title>{escape(one_line(about))}</title></rect>'
            )
            if height >= 11.0:
                shown = _clip(branch.name, (width - 8) / CHARACTER)
                content.append(
                    f'<text x="{x + 4:.1f}" y="{top + min(height / 2 + 3.5, 14):.1f}" fill="var(--on)">{shown}</text>'
                )
        tops.append(places)
    about = "The tree: the height of a box is its number of images, its colour the share of them that is wrong"
    return _svg("icicle", about, ICICLE_HEIGHT, content)


def _clip(name: str, length: float) -> str:
    """Return a name that fits, escaped."""
    name = one_line(name)
    most = max(int(length), 1)
    return escape(name if len(name) <= most else f"{name[: most - 1]}…")


def answers(report: ReportNumbers) -> ReportDrawing:
    """Return right answers over information given: a line for each fitted rule, a point for each of the others."""
    points = list[tuple[str, float, float]]()
    bits = np.log2(report.tree.num_classes)
    for record in report.rules():
        if record["at"] is None:
            points.append(
                (str(record["title"]).split(" (")[0], record["information"] / bits, record["correct"] / 100.0)
            )
    lowest = min([y for _, _, y in points] + [y for line in report.curves.values() for _, y in line], default=0.0)
    low = min(np.floor(lowest * 10.0) / 10.0, 0.9)

    def place(x: float, y: float) -> tuple[float, float]:
        return LEFT_EDGE + x * (DRAWING_WIDTH - LEFT_EDGE - RIGHT_MARGIN), TOP + (1.0 - (y - low) / (1.0 - low)) * (
            BOTTOM - TOP
        )

    content = list[str]()
    for share in np.linspace(low, 1.0, 5):
        _, y = place(0.0, share)
        content.append(f'<path d="M{LEFT_EDGE:g} {y:.1f}H{DRAWING_WIDTH - RIGHT_MARGIN:g}" stroke="var(--line)"/>')
        content.append(
            f'<text x="{LEFT_EDGE - 4:g}" y="{y + 3.5:.1f}" text-anchor="end" fill="var(--soft)">{share:.0%}</text>'
        )
    for share in (0.0, 0.5, 1.0):
        x, _ = place(share, 1.0)
        anchor = "end" if share == 1.0 else "middle"
        content.append(
            f'<text x="{x:.1f}" y="{BOTTOM + 13:g}" text-anchor="{anchor}" fill="var(--soft)">{share * bits:.1f}</text>'
        )
    axis = "bits of information given; up: share right"
    content.append(f'<text x="{LEFT_EDGE:g}" y="{BOTTOM + 27:g}" fill="var(--soft)">{axis}</text>')
    for color, (title, line) in zip(LINES, report.curves.items(), strict=False):
        path = " ".join(f"{'ML'[n > 0]}{x:.1f} {y:.1f}" for n, (x, y) in enumerate(place(*each) for each in line[1:-1]))
        content.append(f'<path d="{path}" fill="none" stroke="var(--{color})" stroke-width="1.8"/>')
        x, y = place(*min(line, key=lambda point: abs(point[0] - NAMED_AT[color])))
        style = f'fill="var(--{color})" font-weight="600" paint-order="stroke" stroke="var(--paper)" stroke-width="3"'
        content.append(f'<text x="{x + 3:.1f}" y="{y - 5:.1f}" {style}>{_clip(title, 30)}</text>')
    taken = list[float]()
    for title, x_share, y_share in sorted(points, key=lambda each: each[2]):
        x, y = place(x_share, max(y_share, low))
        at = y + 3.5
        while any(abs(at - other) < 11 for other in taken):
            at -= 11
        taken.append(at)
        anchor, shift = ("end", -5) if x > DRAWING_WIDTH / 2 else ("start", 5)
        content.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.6" fill="var(--ink)"/>')
        content.append(f'<text x="{x + shift:.1f}" y="{at:.1f}" text-anchor="{anchor}">{_clip(title, 26)}</text>')
    about = "Right answers over the information that they give, by decision rule"
    return _svg("answers", about, BOTTOM + 32, content)


def differences(report: ReportNumbers) -> ReportDrawing:
    """Return the differences of the numbers of part 1, each on its own scale, with their intervals."""
    shown = [change for change in report.changes if change.metric in TITLES and np.isfinite(change.low)]
    content = [f'<path d="M{MIDDLE:g} 0V{ROW * len(shown) + 4:g}" stroke="var(--soft)"/>']
    for row, change in enumerate(shown):
        y = ROW * row + 14
        largest = max(abs(change.low), abs(change.high)) or 1.0
        # To the right is better, whatever the sign of the metric.
        sign = 1.0 if change.better == "higher" else -1.0
        low, high, value = (
            MIDDLE + HALF_WIDTH * sign * each / largest for each in (change.low, change.high, change.value)
        )
        color = {"better": "one", "worse": "two", "open": "soft"}[change.verdict]
        content += [
            f'<text x="0" y="{y + 3.5:g}">{TITLES[change.metric]} {change.value:+.2f}</text>',
            f'<path d="M{low:.1f} {y:g}H{high:.1f}" stroke="var(--{color})" stroke-width="2.5"/>',
            f'<circle cx="{value:.1f}" cy="{y:g}" r="4" fill="var(--{color})"/>',
        ]
    y = ROW * len(shown) + 14
    content.append(
        f'<text x="{MIDDLE + HALF_WIDTH:g}" y="{y:g}" text-anchor="end" fill="var(--soft)">B better →</text>'
    )
    content.append(f'<text x="{MIDDLE - HALF_WIDTH:g}" y="{y:g}" fill="var(--soft)">← B worse</text>')
    return _svg("differences", "B minus A with 95 % intervals, each on its own scale", y + 4, content)
