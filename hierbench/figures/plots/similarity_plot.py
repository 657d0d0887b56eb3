"""The mapping from hierarchical distance to cosine similarity, exponential and linear."""

import math
from typing import NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from hierbench.config.recipe import dataset_title, load_recipe, recipe_names
from hierbench.config.sections import Protocol
from hierbench.figures.plots import style
from hierbench.figures.plots.figure_data import FigureRequest, Tree, find_tree, require_tree
from hierbench.hierarchy.label_tree import Hierarchy
from hierbench.losses.frames import minimum_similarity_of_tree

MARKER_BY_GAMMA = {1: "o", 2: "s", 3: "^", 4: "D", 5: "v"}  # {gamma: marker}
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


def trees_to_show(request: FigureRequest) -> tuple[dict[str, Tree], list[str]]:
    """Return {dataset: tree} from low to high, and the datasets without a known tree."""
    if request.dataset != "all":
        return {request.dataset: require_tree(request.dataset, request.data_dir)}, []
    trees = {name: find_tree(name, request.data_dir) for name in recipe_names()}
    tree_by_name = {name: tree for name, tree in trees.items() if tree is not None}
    order = sorted(tree_by_name, key=lambda name: (tree_by_name[name].hierarchy.height, name))
    levels = {
        tree_by_name[name].hierarchy.level_sizes: name for name in reversed(order)
    }  # two recipes may share a tree
    unknown = [
        name for name in trees.keys() - tree_by_name.keys() if load_recipe(name).expected.level_sizes not in levels
    ]
    return {name: tree_by_name[name] for name in order if name in levels.values()}, sorted(unknown)


def draw(request: FigureRequest) -> style.Drawing:
    """Draw the mappings of one dataset's tree, or of all known ones side by side."""
    trees, unknown = trees_to_show(request)
    columns = min(len(trees), 2)
    rows = math.ceil(len(trees) / columns)
    figure = style.new_figure(style.TWO_COLUMNS, 2.6 * rows if columns > 1 else 4.0)
    grid = figure.subplots(rows, columns, squeeze=False, sharey=True)
    for axes, (name, tree) in zip(grid.flat, trees.items(), strict=False):
        _panel(axes, dataset_title(name), tree.hierarchy, request.protocol)
    for axes in grid.flat[len(trees) :]:
        axes.set_visible(False)
    grid[0, 0].set_ylim(top=1.1)
    for axes in grid[:, 0]:
        axes.set_ylabel("cosine similarity $S$")
    remarks = [f"not shown: {', '.join(unknown)}, whose trees come with their data"] if unknown else []
    return style.Drawing(figure, remarks)


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
