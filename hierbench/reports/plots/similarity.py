"""The mapping from hierarchical distance to cosine similarity, exponential and linear, per hierarchy."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hierbench.config.recipe import Protocol, load_recipe, recipe_names
from hierbench.hierarchy.tree import Hierarchy
from hierbench.reports.plots import style
from hierbench.reports.plots.source import Request, Tree, find_tree, tree_of
from hierbench.utils.errors import UserError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

GAMMAS = (1, 2, 3, 4, 5)
MARKERS = ("o", "s", "^", "D", "v")
SHADES = (0.0, 0.22, 0.44, 0.62, 0.8)  # of cividis, dark enough for white paper


class Curve(NamedTuple):
    """A mapping at the distances 0 to d_max that a tree has; gamma and s_min are None for the linear one."""

    gamma: int | None
    s_min: float | None
    values: NDArray[np.float64]


def mapping_curves(hierarchy: Hierarchy, mode: Protocol) -> list[Curve]:
    """Return the linear mapping 1 - d / d_max, then (1 - s_min) exp(-gamma d / d_max) + s_min for each gamma.

    Args:
        hierarchy: gives d_max and, with gamma, the smallest similarity s_min.
        mode: which grid s_min is on, see `hierbench.methods.haframe.minimum_similarity`.

    Reference: Liang & Davis, ICCV 2023, equation 2.
    """
    from hierbench.methods.haframe import minimum_similarity

    relative = np.arange(hierarchy.height + 1) / hierarchy.height
    curves = [Curve(None, None, 1.0 - relative)]
    for gamma in GAMMAS:
        s_min = minimum_similarity(hierarchy.distances, gamma, mode, hierarchy.height)
        curves.append(Curve(gamma, s_min, (1.0 - s_min) * np.exp(-gamma * relative) + s_min))
    return curves


def trees_shown(request: Request) -> tuple[dict[str, Tree], list[str]]:
    """Return {dataset: tree} from low to high, and the datasets whose tree is not known here."""
    if request.dataset != "all":
        return {request.dataset: tree_of(request.dataset, request.data_dir)}, []
    found = {name: find_tree(name, request.data_dir) for name in recipe_names()}
    known = {name: tree for name, tree in found.items() if tree is not None}
    if not known:
        raise UserError("no tree is known: prepare a dataset, or say where they are with --data-dir")
    order = sorted(known, key=lambda name: (known[name].hierarchy.height, name))
    return {name: known[name] for name in order}, sorted(found.keys() - known.keys())


def draw(request: Request) -> style.Drawing:
    """Draw the mappings of one dataset's tree, or of all known ones side by side."""
    trees, unknown = trees_shown(request)
    columns = len(trees) if len(trees) <= 3 else 2
    rows = math.ceil(len(trees) / columns)
    figure = style.new_figure(style.SINGLE if columns == 1 else style.DOUBLE, 2.6 * rows)
    grid = figure.subplots(rows, columns, squeeze=False, sharey=True)
    mode = request.protocol or "paper"
    for axes, (name, tree) in zip(grid.flat, trees.items(), strict=False):
        _panel(axes, name, tree.hierarchy, mapping_curves(tree.hierarchy, mode))
    for axes in grid.flat[len(trees) :]:
        axes.set_visible(False)
    grid[0, 0].set_ylim(top=1.1)
    for axes in grid[:, 0]:
        axes.set_ylabel("cosine similarity $S$")
    remarks = [f"not shown: {', '.join(unknown)}, whose trees come with their data"] if unknown else []
    return style.Drawing(figure, remarks)


def _panel(axes: Axes, name: str, hierarchy: Hierarchy, curves: list[Curve]) -> None:
    import matplotlib as mpl

    distances = np.arange(hierarchy.height + 1)
    fine = np.linspace(0, hierarchy.height, 200)
    colours = mpl.colormaps["cividis"](SHADES)
    axes.axhline(0.0, color=style.LIGHT, linewidth=0.6, zorder=0)
    for curve in curves:
        if curve.gamma is None or curve.s_min is None:
            axes.plot(distances, curve.values, color=style.VERMILION, linestyle="--", marker="x", label="linear")
            continue
        at = GAMMAS.index(curve.gamma)
        label = rf"$\gamma={curve.gamma}$, $s_\mathrm{{min}}={curve.s_min:.2f}$"
        between = (1.0 - curve.s_min) * np.exp(-curve.gamma * fine / hierarchy.height) + curve.s_min
        axes.plot(fine, between, color=colours[at], linewidth=0.9)
        axes.plot(distances, curve.values, color=colours[at], linestyle="none", marker=MARKERS[at], label=label)
    axes.set_title(f"{load_recipe(name).title}\n{hierarchy.num_classes} classes, height {hierarchy.height}")
    axes.set_xlabel("hierarchical distance $d$")
    axes.set_xticks(distances)
    axes.legend(loc="upper right", handlelength=0.9, handletextpad=0.4, labelspacing=0.15, borderaxespad=0.0)
