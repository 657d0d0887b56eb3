"""The data of figures: runs as the leaderboard selects them, their curves, and trees known without images."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hierbench.config.options import folder_options
from hierbench.config.recipe import dataset_title, load_protocols
from hierbench.data.prepared import find
from hierbench.data.source import shipped_paths
from hierbench.figures.plots import PLOT_TITLES
from hierbench.figures.plots.style import Drawing, house_style
from hierbench.hierarchy.label_tree import Distance, Hierarchy, IntArray
from hierbench.leaderboard.board import Board
from hierbench.leaderboard.statistics import Row, summarise
from hierbench.leaderboard.tables.board_table import lacking
from hierbench.utils.console import say
from hierbench.utils.errors import UserError, unknown_name

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from hierbench.metrics.metric_inputs import Evidence

Floats = NDArray[np.float64]
COVERAGES: Floats = np.linspace(0.0, 1.0, 101)
CLIMBING = "haurc_climbing"
MOST_NODES_DRAWN = 1200  # classes of a tree that a picture shows one by one
BY_LEVEL = {  # metric: how the node of a level is predicted
    "level_accuracy": "of the class ranked first",
    "level_accuracy_lifted": "lifted, of the largest sum of probabilities",
}


@dataclass(frozen=True)
class FigureRequest:
    """The request of `hierbench plot`."""

    dataset: str
    data_dir: Path
    board: Board
    method: str | None = None  # this and the following select the run of a confusion matrix
    type: str | None = None
    seed: int | None = None


def draw(kind: str, request: FigureRequest) -> Drawing:
    """Draw a kind of picture in the project's style."""
    with house_style():
        drawing: Drawing = import_module(f"hierbench.figures.plots.{kind}_plot").draw(request)
    return drawing


def draw_board(board: Board, kind: str, **run: Any) -> "Figure":
    """Draw a picture of a board's runs, see `Board.plot`."""
    if kind not in PLOT_TITLES:
        raise unknown_name("plot", kind, PLOT_TITLES)
    drawing = draw(kind, FigureRequest(board.file or board.dataset, board.data_dir, board.of_runs, **run))
    for remark in drawing.remarks:
        say(f"note: {remark}")
    return drawing.figure


@dataclass(frozen=True)
class Tree:
    """A hierarchy over K classes, and the path of each of them: coarsest first, the class last."""

    hierarchy: Hierarchy
    paths: tuple[tuple[str, ...], ...]

    def names(self, level: int) -> list[str]:
        """Return the names of a level's nodes; a leaf above the level is a node of it."""
        path_by_node = dict(zip(self.hierarchy.level_targets[:, level].tolist(), self.paths, strict=True))
        return [path[min(level, len(path) - 1)] for _, path in sorted(path_by_node.items())]

    def fitted(self, most: int = MOST_NODES_DRAWN) -> tuple["Tree", IntArray, list[str]]:
        """Return the tree down to its finest level of at most `most` nodes, where it has more classes.

        And for each class its node there [K], and what a reader should know.
        """
        sizes = self.hierarchy.level_sizes
        if sizes[-1] <= most:
            return self, np.arange(sizes[-1]), []
        level = max((place for place, size in enumerate(sizes) if size <= most), default=0)
        node_of = self.hierarchy.level_targets[:, level]
        _, classes = np.unique(node_of, return_index=True)
        names = [self.paths[index][: level + 1] for index in classes]
        numbers = [
            tuple(f"{place}-{node}" for place, node in enumerate(self.hierarchy.level_targets[index, : len(path)]))
            for index, path in zip(classes, names, strict=True)
        ]
        tree = Hierarchy.from_paths({path[-1]: path for path in numbers}, self.hierarchy.distance)
        remark = f"level {level + 1} of {len(sizes)}: {sizes[level]:,} nodes in place of {sizes[-1]:,} classes"
        return Tree(tree, tuple(names)), node_of, [remark]


def find_tree(dataset: str, data_dir: Path, distance: Distance | None = None) -> Tree | None:
    """Return the tree of a dataset's prepared form, else the shipped tree, else None.

    The distance is that of the recipe unless given. A UserError says that there is no such dataset, or that its
    prepared form is damaged.
    """
    recipes = load_protocols(dataset)
    names = dict.fromkeys(recipe.data.variant for recipe in recipes)
    prepared = next(filter(None, (find(name, data_dir) for name in names)), None)
    try:
        paths = prepared.meta["paths"] if prepared else shipped_paths(recipes[0].data.dataset).values()
    except FileNotFoundError:
        return None
    path_by_class = {path[-1]: tuple(path) for path in paths}
    return Tree(Hierarchy.from_paths(path_by_class, distance or recipes[0].distance), tuple(path_by_class.values()))


def require_tree(dataset: str, data_dir: Path, distance: Distance | None = None) -> Tree:
    """Return a dataset's tree as `find_tree`; the error says how to get it."""
    tree = find_tree(dataset, data_dir, distance)
    if tree is None:
        raise UserError(
            f"the tree of {dataset} comes with its data, and {dataset} is not prepared in {data_dir}; "
            f"run: hierbench data prepare {dataset}{folder_options(data_dir=data_dir)}"
        )
    return tree


def open_figure_board(request: FigureRequest) -> Board:
    """Return the leaderboard that a figure shows; a UserError says that it has no finished run."""
    board = request.board
    if not any(row.n for row in board.rows):
        raise UserError(f"no run of {request.dataset} in {board.records.root} is finished yet")
    return board


def over_runs(values: Sequence[ArrayLike], ddof: int) -> Floats:
    """Return [2, n], mean and half-width of the interval over runs (NaN for one run), from the n values of each."""
    cells = [summarise(run_values, ddof) for run_values in np.stack(values).T.tolist()]
    return np.array([[cell.mean for cell in cells], [cell.ci95 for cell in cells]], dtype=np.float64)


def level_names(num_levels: int) -> list[str]:
    """Return the names of the metrics by level, kind by kind."""
    return [f"{kind}@{level}" for kind in BY_LEVEL for level in range(1, num_levels + 1)]


def risk_over_coverage(parts: Iterable["Evidence"]) -> Floats:
    """Return the risk of the climbing rule at each of `COVERAGES`, linear between the thresholds of the predictions."""
    from hierbench.metrics.metric import join_counts
    from hierbench.metrics.selective import climb_steps, curve_from_steps

    steps = [climb_steps(part.top, part.climb, part.known_targets(), part.hierarchy) for part in parts]
    curve = curve_from_steps(join_counts(steps), "climbing")
    coverage = curve.coverage.numpy()[::-1]
    risk = curve.risk.numpy()[::-1]
    risks: Floats = np.interp(COVERAGES, coverage, risk)
    return risks


def remarks_on(board: Board, absent: list[Row] | None = None, reason: str = "") -> list[str]:
    """Return a leaderboard's settings, its rows that lack runs, and why the absent rows are not in the figure."""
    settings = [f"settings: {board.settings}"] if board.remarks else []
    incomplete = [
        f"{label_row(row)}: {row.n} of {row.planned} runs are finished" for row in board.rows if row.n < row.planned
    ]
    incomplete += [f"{label_row(row)}: {lacking(row)}" for row in board.rows if row.lacking]
    missing = [f"not shown: {'; '.join(map(label_row, absent))}: {reason}"] if absent else []
    return settings + incomplete + missing


def label_row(row: Row) -> str:
    """Return how a message names a row."""
    return f"{row.title}, {row.type}"


def heading(board: Board, dataset: str) -> str:
    """Return the title of a leaderboard's figure: the dataset, as the user gave it, and the source of the numbers."""
    numbers = "published numbers" if board.protocol == "published" else f"protocol {board.protocol}"
    return f"{dataset_title(dataset)}, {numbers}"
