"""Draws docs/pictures/similarity.svg: the mapping from hierarchical distance to cosine similarity.

`uv run python docs/pictures/similarity.py`
"""

import math
from pathlib import Path
from typing import NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from hierbench.config.recipe import dataset_title
from hierbench.config.sections import Protocol
from hierbench.data.source import shipped_paths
from hierbench.hierarchy.label_tree import Hierarchy
from hierbench.leaderboard.pictures import style
from hierbench.losses.frames import minimum_similarity_of_tree

MARKER_BY_GAMMA = {1: "o", 2: "s", 3: "^", 4: "D", 5: "v"}  # {gamma: marker}
NAMES = ("fgvc", "cifar100", "tiny-imagenet", "imagenet1k")
SHADES = (0.0, 0.22, 0.44, 0.62, 0.8)  # of cividis, dark enough for white paper


class SimilarityCurve(NamedTuple):
    """The mapping S = (1 - s_min) exp(-gamma d / d_max) + s_min (Liang & Davis, ICCV 2023, equation 2)."""

    gamma: int
    s_min: float

    def cosines(self, relative: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return S at relative distances d / d_max."""
        return (1.0 - self.s_min) * np.exp(-self.gamma * relative) + self.s_min


def mapping_curves(hierarchy: Hierarchy, mode: Protocol) -> list[SimilarityCurve]:
    """Return a mapping per gamma; `mode` is the grid of s_min, see `hierbench.methods.haframe`."""
    return [SimilarityCurve(gamma, minimum_similarity_of_tree(hierarchy, gamma, mode)) for gamma in MARKER_BY_GAMMA]


def draw() -> Figure:
    """Draw the mappings of the trees that ship with the paper's recipes, from low to high, side by side."""
    trees = sorted(
        ((name, Hierarchy.from_paths(shipped_paths(name))) for name in NAMES), key=lambda pair: pair[1].height
    )
    figure = style.new_figure(style.TWO_COLUMNS, 2.6 * math.ceil(len(trees) / 2))
    grid = figure.subplots(math.ceil(len(trees) / 2), 2, squeeze=False, sharey=True)
    for axes, (name, tree) in zip(grid.flat, trees, strict=False):
        _panel(axes, dataset_title(name), tree, "paper")
    for axes in grid.flat[len(trees) :]:
        axes.set_visible(False)
    grid[0, 0].set_ylim(top=1.1)
    for axes in grid[:, 0]:
        axes.set_ylabel("cosine similarity $S$")
    return figure


def _panel(axes: Axes, title: str, hierarchy: Hierarchy, mode: Protocol) -> None:
    distances = np.arange(hierarchy.height + 1)
    fine = np.linspace(0, hierarchy.height, 200)
    axes.axhline(0.0, color=style.LIGHT, linewidth=0.6, zorder=0)
    linear = 1.0 - distances / hierarchy.height
    axes.plot(distances, linear, color=style.VERMILION, linestyle="--", marker="x", label="linear")
    for curve, colour in zip(mapping_curves(hierarchy, mode), mpl.colormaps["cividis"](SHADES), strict=True):
        label = rf"$\gamma={curve.gamma}$, $s_\mathrm{{min}}={curve.s_min:.2f}$"
        axes.plot(fine, curve.cosines(fine / hierarchy.height), color=colour, linewidth=0.9)
        axes.plot(
            distances,
            curve.cosines(distances / hierarchy.height),
            color=colour,
            linestyle="none",
            marker=MARKER_BY_GAMMA[curve.gamma],
            label=label,
        )
    axes.set_title(f"{title}, protocol {mode}: {hierarchy.num_classes} classes, height {hierarchy.height}", loc="left")
    axes.set_xlabel("hierarchical distance $d$")
    axes.set_xticks(distances)
    axes.legend(loc="upper right", handlelength=0.9, handletextpad=0.4, labelspacing=0.15, borderaxespad=0.0)


if __name__ == "__main__":
    with style.house_style():
        style.write_figure(draw(), Path(__file__).with_suffix(".svg"))
