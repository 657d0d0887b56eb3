"""The look that all figures share, and how they are written: print widths, nothing encoded by colour alone."""

import io
import math
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple

import matplotlib.style
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hierbench.leaderboard.statistics import Row
from hierbench.utils.errors import UserError
from hierbench.utils.files import write_atomically
from hierbench.utils.text import one_line

ONE_COLUMN = 3.35  # inches: one column of a two-column page
TWO_COLUMNS = 6.9  # both
SMALL_TYPE = 7.0  # points
TINY_TYPE = 6.0
NAME_HEIGHT = 0.055  # of a panel: from one name at a line to the next
SCREEN = 144  # dots per inch in a notebook
GREY = "#666666"
LIGHT = "#d9d9d9"
SMALL_NOTE: dict[str, Any] = {"fontsize": TINY_TYPE, "color": GREY}

# Okabe & Ito's palette without its yellow, which is too light for lines on white.
BLACK = "#000000"
ORANGE = "#E69F00"
SKY = "#56B4E9"
GREEN = "#009E73"
BLUE = "#0072B2"
VERMILION = "#D55E00"
PURPLE = "#CC79A7"
LINE_COLOURS = (BLUE, VERMILION, GREEN, PURPLE, ORANGE)  # of lines that are named where they end

STYLE: dict[str, Any] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib, so that a figure is the same everywhere
    "font.size": 8.0,
    "axes.titlesize": 8.0,
    "xtick.labelsize": SMALL_TYPE,
    "ytick.labelsize": SMALL_TYPE,
    "legend.fontsize": SMALL_TYPE,
    "legend.frameon": False,
    "legend.handlelength": 3.0,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "lines.linewidth": 1.2,
    "lines.markersize": 4.0,
    "hatch.linewidth": 0.5,
    "savefig.dpi": 300,
    "svg.hashsalt": "hierbench",  # else the ids within an SVG are new each time
    "pdf.fonttype": 42,
}
# Leaves out metadata that differ between two files of the same figure.
FIGURE_METADATA = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}, ".png": {"Software": None}}
# Coordinates, in points, whose digits after the second are left out; scales of glyphs and comments keep theirs.
SVG_NUMBER = re.compile(rb"<!--.*?-->|scale\([^)]*\)|(\d+\.\d\d)\d+", re.DOTALL)


class Picture(Figure):
    """A figure that a notebook shows as a cell's value, whether or not pyplot has been imported."""

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        with house_style():
            self.savefig(buffer, format="png", dpi=SCREEN)
        return buffer.getvalue()


class LineLook(NamedTuple):
    """How one method is drawn in every figure."""

    colour: str
    marker: str
    dashes: Any
    hatch: str


class Drawing(NamedTuple):
    """A figure, and remarks on it that are printed."""

    figure: Figure
    remarks: list[str]


# No hatching of dots: a picture in SVG draws each of them.
LOOKS = {
    "ce": LineLook(BLACK, "o", "-", ""),
    "crm": LineLook(SKY, "s", (0, (1, 1)), "////"),
    "flamingo": LineLook(ORANGE, "^", (0, (5, 1.5)), "----"),
    "hafeature": LineLook(GREEN, "D", (0, (5, 1, 1, 1)), "\\\\\\\\"),
    "haframe": LineLook(BLUE, "v", "-", "xxxx"),
}
SPARE = [
    LineLook(VERMILION, "P", (0, (3, 1, 1, 1, 1, 1)), "//"),
    LineLook(PURPLE, "X", (0, (8, 2)), "||||"),
    LineLook(GREEN, "*", (0, (1, 1)), "xx"),
    LineLook(ORANGE, "p", (0, (6, 1, 3, 1)), "\\\\\\"),
    LineLook(SKY, "d", (0, (2, 2)), "--"),
]
MOST_COLOURED = 5  # series of a figure with a colour and a name
OTHER_LOOK = LineLook(LIGHT, "o", "-", "")  # all further ones


def look_key(row: Row) -> tuple[str, str]:
    """Return the key of a row's look: its method, or its variant where hyperparameters differ."""
    return row.method, row.title


def assign_looks(rows: Sequence[Row]) -> dict[tuple[str, str], LineLook]:
    """Return {(method, title): look}: cross-entropy and the best by HierDist@1 are coloured, all others light grey.

    The project's methods always look the same, others take the looks that are left.
    """
    best: dict[tuple[str, str], float] = {}
    for row in rows:
        distance = row.metrics["hierdist@1"].mean if "hierdist@1" in row.metrics else None
        value = math.inf if distance is None else distance
        best[look_key(row)] = min(best.get(look_key(row), math.inf), value)
    coloured = sorted(best, key=lambda key: (key[0] != "ce", best[key], key))[:MOST_COLOURED]
    look_by_name: dict[str, LineLook | None] = {**LOOKS}
    spare = iter(SPARE)
    looks = dict.fromkeys(best, OTHER_LOOK)
    for method, title in sorted(coloured):
        looks[method, title] = look_by_name.pop(method, None) or next(spare)
    return looks


def plain(text: str, limit: int = 60) -> str:
    """Return text on one line that matplotlib draws verbatim: no mathematics, nothing hidden from legends."""
    text = one_line(text, limit).replace("$", r"\$")
    return f"\u200a{text}" if text.startswith("_") else text  # a hair space: legends skip "_..."


@contextmanager
def house_style() -> Iterator[None]:
    """Draw and write in the project's style, independent of the user's matplotlibrc."""
    with matplotlib.style.context(STYLE, after_reset=True), warnings.catch_warnings():
        # A name in a script that the font lacks is drawn as boxes, without a warning per letter.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield


def new_figure(width: float, height: float, layout: Literal["constrained"] | None = "constrained") -> Figure:
    """Return an empty figure of that many inches; without pyplot, so without a display and without global state."""
    return Picture(figsize=(width, height), layout=layout)


def note(axes: Axes, text: str) -> None:
    """Explain a panel's marks in grey above its right end."""
    axes.set_title(text, loc="right", fontsize=SMALL_TYPE, color=GREY)


def bare(axes: Axes) -> None:
    """Remove frame and ticks."""
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_visible(False)


def filling(look: LineLook) -> dict[str, Any]:
    """Return how an area of a method is filled."""
    face = "white" if look.hatch else look.colour
    return {"facecolor": face, "edgecolor": look.colour, "hatch": look.hatch, "linewidth": 0.6}


def line_style(look: LineLook) -> dict[str, Any]:
    """Return how a line of a method is drawn."""
    return {"color": look.colour, "linestyle": look.dashes, "marker": look.marker, "markersize": 3}


def legend_below(
    figure: Figure,
    rows: Sequence[Row],
    looks: Mapping[tuple[str, str], LineLook],
    handle_of: Callable[[LineLook], Artist],
) -> None:
    """Name the methods once below all panels, in the order of the rows; few columns where names are long."""
    names = {looks[key]: "others" if looks[key] == OTHER_LOOK else plain(key[1]) for key in map(look_key, rows)}
    columns = max(1, min(len(names), int(110 / (max(map(len, names.values())) + 8))))
    figure.legend(list(map(handle_of, names)), [*names.values()], loc="outside lower center", ncols=columns)


def name_lines(axes: Axes, ends: Sequence[tuple[float, str, str]]) -> None:
    """Write names right of a panel at the height where lines end, one below the other: (height, name, colour) each."""
    low, high = axes.get_ylim()
    places = [(height - low) / (high - low) for height, *_ in ends]
    order = sorted(range(len(ends)), key=lambda i: places[i])
    for before, after in pairwise(order):
        places[after] = max(places[after], places[before] + NAME_HEIGHT)
    if order and places[order[-1]] > 1.0:  # down again, where the names do not fit below the upper end
        places[order[-1]] = 1.0
        for after, before in pairwise(reversed(order)):
            places[before] = min(places[before], places[after] - NAME_HEIGHT)
    for place, (_, name, colour) in zip(places, ends, strict=True):
        axes.text(1.02, place, name, color=colour, va="center", fontsize=SMALL_TYPE, transform=axes.transAxes)


def check_output(path: Path, option: str = "--output") -> None:
    """Raise a UserError, before anything is drawn, where a figure cannot be written."""
    if path.suffix.lower() not in FIGURE_METADATA:
        raise UserError(f"{option} {path}: the suffix must be one of {', '.join(FIGURE_METADATA)}")
    if path.exists() and not path.is_file():
        raise UserError(f"{option} {path}: not a file")
    if not path.parent.is_dir():
        raise UserError(f"{option} {path}: there is no folder {path.parent}")


def write_figure(figure: Figure, path: Path) -> None:
    """Write a figure, whole or not at all, in the format of the suffix; the same figure gives the same bytes."""
    suffix = path.suffix.lower()
    buffer = io.BytesIO()
    with house_style():
        figure.savefig(buffer, format=suffix[1:], metadata=FIGURE_METADATA[suffix])
    content = buffer.getvalue()
    if suffix == ".svg":
        content = SVG_NUMBER.sub(lambda match: match[1] or match[0], content)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, lambda file: file.write(content))
    except OSError as error:
        raise UserError(f"the figure cannot be written to {path}: {error.strerror or error}") from None
