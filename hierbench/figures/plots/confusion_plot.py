"""The confusion matrix of a run, its classes in the order of the tree."""

from itertools import pairwise
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, LogNorm
from matplotlib.ticker import FuncFormatter, NullLocator
from numpy.typing import NDArray

from hierbench.config.recipe import dataset_title
from hierbench.figures.plots import style
from hierbench.figures.plots.figure_data import FigureRequest, Tree, open_figure_board, require_tree
from hierbench.figures.plots.tree_drawing import as_polyline, block_bounds, branches, class_order
from hierbench.hierarchy.label_tree import Hierarchy, IntArray
from hierbench.leaderboard.selection import choose_run
from hierbench.utils.errors import UserError

NAMED_CLASSES = 64  # up to here every class has its name
NAMED_NODES = 48  # else the finest level with at most this many nodes has
MATRIX_SIDE = 4.4
TREE_WIDTH = 0.85
NAMES_WIDTH = 1.45  # room to its right
ROOM_BELOW = 0.75
ROOM_ABOVE = 0.35  # inches


def confusion_counts(scores: NDArray[np.floating[Any]], targets: IntArray, node_of: IntArray) -> IntArray:
    """Return [M, M] int: how many examples of each node (row) are ranked first as a class of each node (column).

    Args:
        scores: [N, K], larger = ranked earlier, ties to the lower class index.
        targets: [N] class indices.
        node_of: [K] which of M nodes each class belongs to.
    """
    num_nodes = int(node_of.max()) + 1
    cells = node_of[targets] * num_nodes + node_of[scores.argmax(axis=1)]
    return np.bincount(cells, minlength=num_nodes**2).reshape(num_nodes, num_nodes)


def named_level(level_sizes: tuple[int, ...]) -> int | None:
    """Return the named level: the classes where they are few, else the finest level with few nodes."""
    if level_sizes[-1] <= NAMED_CLASSES:
        return len(level_sizes) - 1
    few = [level for level, size in enumerate(level_sizes[:-1]) if 1 < size <= NAMED_NODES]
    return few[-1] if few else None


def draw(request: FigureRequest) -> style.Drawing:
    """Draw the confusion matrix of the requested run."""
    run = choose_run(open_figure_board(request), request.method, request.type, request.seed)
    spec = run.job
    name = f"run {run.id[:12]} ({run.label})"
    tree = require_tree(request.dataset, request.data_dir, spec.dataset.distance)
    if tree.hierarchy.digest() != spec.dataset.hierarchy:
        raise UserError(f"{name} was on another tree of {request.dataset} than the one known here")
    if not run.has_predictions:
        raise UserError(f"{name} has no predictions.npz: published records have none")
    try:
        tree, node_of, remarks = tree.fitted()
        counts = confusion_counts(*run.predictions(), node_of)
    except ValueError as error:
        raise UserError(f"{name}: {error}") from None
    order = class_order(tree.hierarchy)
    figure = style.new_figure(style.TWO_COLUMNS, ROOM_BELOW + MATRIX_SIDE + ROOM_ABOVE, layout=None)

    def place(left: float, bottom: float, width: float, height: float) -> Axes:
        across, up = figure.get_size_inches()
        return figure.add_axes((left / across, bottom / up, width / across, height / up))

    _tree(place(0.1, ROOM_BELOW, TREE_WIDTH, MATRIX_SIDE), tree.hierarchy, order)
    axes = place(0.1 + TREE_WIDTH, ROOM_BELOW, MATRIX_SIDE, MATRIX_SIDE)
    _matrix(axes, place(0.1 + TREE_WIDTH, ROOM_BELOW - 0.32, MATRIX_SIDE, 0.08), counts[np.ix_(order, order)])
    if remarks:
        axes.set_xlabel(f"predicted (rows: true), {remarks[0]}", labelpad=3)
    _blocks(axes, tree.hierarchy, order)
    _names(axes, tree, order)
    severity = run.metrics["mistake_severity"]
    about = f"{run.metrics['top1']:.2f}% correct"
    about += "" if severity is None else f", mistake severity {severity:.2f}"
    title = f"{dataset_title(request.dataset)}, protocol {spec.protocol}"
    axes.set_title(f"{title}\n{style.plain(run.title)}, {spec.type}, seed {spec.seed}: {about}", loc="left")
    return style.Drawing(figure, [f"run {run.id} ({spec.label}; type and seed choose another)", *remarks])


def _tree(axes: Axes, hierarchy: Hierarchy, order: IntArray) -> None:
    """Draw the tree with its root at the left, its leaves at the rows of the matrix."""
    lines = branches(hierarchy.distances, order)
    stubs = [line for line in lines if line[0][1] == 0.0]
    inner = [line for line in lines if line[0][1] > 0.0]
    room = MATRIX_SIDE * 72.0 / len(order)  # points per class
    for part, colour in ((stubs, "black" if room > 1.0 else style.LIGHT), (inner, "black")):
        places, heights = as_polyline(part)
        axes.plot(heights, places, color=colour, linewidth=min(0.6, max(0.25, 0.4 * room)))
    axes.set_xlim(hierarchy.height * 1.02, 0)
    axes.set_ylim(len(order) - 0.5, -0.5)
    style.bare(axes)


def _matrix(axes: Axes, below: Axes, counts: IntArray) -> None:
    """Draw the counts on a logarithmic scale that starts at 1, explained below; empty cells stay white."""
    lightest = 0.88 if len(counts) <= 250 else 0.5  # of cividis: a single mistake must stand out from white
    dark = mpl.colormaps["cividis"](np.linspace(lightest, 0.0, 256))
    colours = LinearSegmentedColormap.from_list("counts", dark)
    largest = max(2, int(counts.max()))
    shown = np.ma.masked_equal(counts, 0)
    image = axes.imshow(shown, cmap=colours, norm=LogNorm(1, largest), interpolation="none", aspect="auto")
    for spine in axes.spines.values():
        spine.set_visible(True)
    axes.set_xlabel("predicted class (rows: true class), both in the order of the tree", labelpad=3)
    bar = axes.figure.colorbar(image, cax=below, orientation="horizontal")
    ticks = [digit * 10**power for power in range(7) for digit in (1, 2, 5) if digit * 10**power <= largest]
    bar.set_ticks(ticks if largest < 1.2 * ticks[-1] else [*ticks, largest])
    below.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0f}"))
    below.xaxis.set_minor_locator(NullLocator())
    bar.set_label("test images (white: none)", labelpad=2)


def _blocks(axes: Axes, hierarchy: Hierarchy, order: IntArray) -> None:
    """Outline the coarsest nodes across the matrix, and the other levels' on its diagonal."""
    sizes = hierarchy.level_sizes
    coarse = [level for level in range(len(sizes) - 1) if 1 < sizes[level] < min(sizes[-1], NAMED_NODES + 1)]
    drawn: set[tuple[int, int]] = set()
    for level in coarse:
        bounds = block_bounds(hierarchy, order, level).tolist()
        if level == coarse[0]:
            for bound in bounds[1:-1]:
                axes.axhline(bound - 0.5, color=style.GREY, linewidth=0.5)
                axes.axvline(bound - 0.5, color=style.GREY, linewidth=0.5)
        blocks = [(start, stop) for start, stop in pairwise(bounds) if stop - start > 1 and (start, stop) not in drawn]
        drawn.update(blocks)
        low, high = (np.array([block[end] for block in blocks]) - 0.5 for end in (0, 1))
        xs = [low, high, high, low, low, low * np.nan]
        ys = [low, low, high, high, low, low * np.nan]
        width = 0.8 if level == coarse[0] else 0.4
        axes.plot(np.ravel(xs, "F"), np.ravel(ys, "F"), color="black", linewidth=width, scalex=False, scaley=False)


def _names(axes: Axes, tree: Tree, order: IntArray) -> None:
    """Name the rows, or the blocks of a coarser level where there are too many classes."""
    level = named_level(tree.hierarchy.level_sizes)
    axes.set_xticks([])
    axes.tick_params(length=0)
    axes.yaxis.tick_right()
    if level is None:
        axes.set_yticks([])
        return
    bounds = block_bounds(tree.hierarchy, order, level)
    names = tree.names(level)
    nodes = tree.hierarchy.level_targets[order[bounds[:-1]], level]
    centres = ((bounds[:-1] + bounds[1:] - 1) / 2.0).tolist()
    room = MATRIX_SIDE * 72.0 / len(order)  # points per class
    size = style.TINY_TYPE
    smallest = 2  # a class among nodes needs no name
    if level == tree.hierarchy.num_levels - 1:
        size = min(style.SMALL_TYPE, 0.95 * room)
        smallest = 1
    kept: list[int] = []
    for block in np.argsort(bounds[:-1] - bounds[1:], kind="stable").tolist():  # large ones first
        if bounds[block + 1] - bounds[block] >= smallest and all(
            abs(centres[block] - centres[other]) * room >= 0.95 * size for other in kept
        ):
            kept.append(block)
    letters = int(NAMES_WIDTH * 72.0 / (0.6 * size))
    labels = [style.readable(names[nodes[block]], letters) for block in kept]
    axes.set_yticks([centres[block] for block in kept], labels, fontsize=size)
