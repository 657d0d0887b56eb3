"""Small drawings inside a page: numbers alone go into them, so they are markup as they are."""

import math
from collections.abc import Mapping, Sequence

from markupsafe import Markup

from hierbench.leaderboard.statistics import AXES, Row, front_of, ranked_rows

Range = tuple[float, float]
MOST_POINTS = 120  # of a curve


def _c(value: float) -> str:
    """Return a coordinate with one digit after the point, none where it is 0."""
    return f"{value:.1f}".removesuffix(".0")


def _scale(value: float, ends: Range, start: float, stop: float) -> float:
    low, high = ends
    share = (value - low) / (high - low) if high > low else 0.5
    return start + (stop - start) * min(max(share, 0.0), 1.0)


def ranges(rows: Sequence[Row], names: Sequence[str]) -> dict[str, Range]:
    """Return the smallest and largest end of an interval of each metric."""
    found = dict[str, Range]()
    for name in names:
        cells = [row.metrics[name] for row in rows if name in row.metrics]
        ends = [cell.mean + sign * (cell.ci95 or 0.0) for cell in cells if cell.mean is not None for sign in (-1, 1)]
        if ends:
            found[name] = (min(ends), max(ends))
    return found


def difference_bar(mean: float, half_width: float, limit: float) -> Markup:
    """Return the interval of a difference beside a line at 0; `limit` is the largest end of any."""
    ends = (-limit, limit)
    low, middle, high = (_scale(mean + sign * half_width, ends, 4.0, 156.0) for sign in (-1.0, 0.0, 1.0))
    return Markup(
        '<svg class="gap" viewBox="0 0 160 14" aria-hidden="true"><path class="axis" d="M80 0V14"/>'
        f'<path d="M{_c(low)} 7H{_c(high)}"/><circle cx="{_c(middle)}" cy="7" r="3.5"/></svg>'
    )


def scatter(rows: Sequence[Row]) -> Markup:
    """Return accuracy over mistake severity, a dot per row, competitive ones filled, and the front of all as a line."""
    points = [
        (x.mean, y.mean, row.competitive)
        for row in rows
        if (x := row.metrics.get("mistake_severity")) and (y := row.metrics.get("top1"))
        if x.mean is not None and y.mean is not None and not row.lacking
    ][:400]
    if not points:
        return Markup("")
    xs, ys = ((min(p[i] for p in points), max(p[i] for p in points)) for i in (0, 1))
    dots = "".join(
        f'<circle{" class=on" if on else ""} cx="{_c(_scale(x, xs, 34, 228))}" cy="{_c(_scale(y, ys, 96, 12))}" r="4"/>'
        for x, y, on in sorted(points, key=lambda point: point[2])
    )
    labels = "".join(
        f'<text x="{x}" y="{y}" text-anchor="{anchor}">{value:.2f}</text>'
        for x, y, anchor, value in (
            (34, 120, "start", xs[0]),
            (228, 120, "end", xs[1]),
            (28, 99, "end", ys[0]),
            (28, 16, "end", ys[1]),
        )
    )
    front = [[row.metrics[name].mean or 0.0 for name in AXES] for row in front_of(ranked_rows(rows))]
    line = " ".join(f"{_c(_scale(x, xs, 34, 228))},{_c(_scale(y, ys, 96, 12))}" for x, y in front)
    return Markup(
        '<svg class="scatter" viewBox="0 0 240 132" role="img" aria-label="Top-1 accuracy over mistake severity, a dot '
        f'per row"><path class="axis" d="M34 6V102H234"/>{labels}'
        f'<text x="131" y="120" text-anchor="middle">mistake severity</text><polyline points="{line}"/>{dots}</svg>'
    )


def curve(values: Sequence[float], marked: int | None = None) -> Markup:
    """Return values per epoch, counted from 1, as a line, with a dot at the epoch that was tested."""
    points = [(x, y) for x, y in enumerate(values, 1) if math.isfinite(y) and abs(y) < 1e12]
    if not points:
        return Markup("")
    step = max(1, math.ceil(len(points) / MOST_POINTS))
    kept = [*points[::step], *([points[-1]] if (len(points) - 1) % step else [])]
    xs, ys = (1.0, float(max(len(values), 2))), (min(y for _, y in points), max(y for _, y in points))
    line = " ".join(f"{_c(_scale(x, xs, 4, 216))},{_c(_scale(y, ys, 76, 8))}" for x, y in kept)
    dot = ""
    if marked is not None and (tested := dict(points).get(marked)) is not None:
        dot = f'<circle cx="{_c(_scale(marked, xs, 4, 216))}" cy="{_c(_scale(tested, ys, 76, 8))}" r="3.5"/>'
    return Markup(
        '<svg class="curve" viewBox="0 0 220 84" aria-hidden="true"><path class="axis" d="M4 80H216"/>'
        f'<polyline points="{line}"/>{dot}</svg>'
    )


def seeds_apart(row: Mapping[int, float], reference: Mapping[int, float]) -> Markup:
    """Return the two rows' values of one metric, with a line between those of the same seed."""
    everything = [value for side in (row, reference) for value in side.values() if math.isfinite(value)]
    if not everything:
        return Markup("")
    ends = (min(everything), max(everything))
    parts = []
    for seed in sorted(row.keys() & reference.keys())[:40]:
        if math.isfinite(row[seed]) and math.isfinite(reference[seed]):
            a, b = (_c(_scale(side[seed], ends, 6, 154)) for side in (row, reference))
            parts.append(f'<path d="M{a} 7L{b} 27"/>')
    for side, y, kind in ((row, 7, ' class="on"'), (reference, 27, "")):
        finite = [side[seed] for seed in sorted(side) if math.isfinite(side[seed])][:40]
        parts += [f'<circle{kind} cx="{_c(_scale(value, ends, 6, 154))}" cy="{y}" r="3"/>' for value in finite]
    return Markup(f'<svg class="seeds" viewBox="0 0 160 34" aria-hidden="true">{"".join(parts)}</svg>')


def histogram(counts: Sequence[int]) -> Markup:
    """Return a bar per tree distance from 1 on; `counts` begins with distance 0."""
    bars = counts[1:60]
    top, width = max([*bars, 1]), 216.0 / max(1, len(bars))
    rects = "".join(
        f'<rect x="{_c(2 + width * place)}" y="{_c(78 - 72 * count / top)}" width="{_c(width * 0.8)}" '
        f'height="{_c(72 * count / top)}"/>'
        for place, count in enumerate(bars)
    )
    return Markup(
        '<svg class="histogram" viewBox="0 0 220 84" aria-hidden="true">'
        f'<path class="axis" d="M2 79H218"/>{rects}</svg>'
    )
