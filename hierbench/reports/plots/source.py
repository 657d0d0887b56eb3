"""What figures are drawn from: runs as the leaderboard selects them, and trees that are known without images."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from hierbench.config.recipe import PROTOCOLS, Protocol, load_recipe, recipe_names
from hierbench.data.prepared import find, variant_name
from hierbench.data.source import shipped_paths
from hierbench.hierarchy.tree import Distance, Hierarchy
from hierbench.runs.store import Run, Store
from hierbench.utils.errors import UserError, unknown_name

if TYPE_CHECKING:
    from hierbench.leaderboard.board import Board
    from hierbench.leaderboard.statistics import Row


@dataclass(frozen=True)
class Request:
    """What the user asked for.

    Attributes:
        dataset: its name; "all" or "" where the kind allows it.
        runs: folder of all runs.
        data_dir: folder of prepared datasets, for their trees.
        source: of a trade-off: our runs or the published table.
        protocol: of the runs; None takes that of the newest.
        run: beginning of a run's id.
        method: name of the chosen run's method.
        type: of the chosen run's model.
        seed: of the chosen run.
    """

    dataset: str
    runs: Path = Path("runs")
    data_dir: Path = Path("data")
    source: Literal["runs", "paper"] = "runs"
    protocol: Protocol | None = None
    run: str | None = None
    method: str | None = None
    type: str | None = None
    seed: int | None = None


@dataclass(frozen=True)
class Tree:
    """A hierarchy and the names of its nodes.

    Attributes:
        hierarchy: over K classes.
        paths: of the K classes, coarsest first and the class last.
    """

    hierarchy: Hierarchy
    paths: tuple[tuple[str, ...], ...]

    def names(self, level: int) -> list[str]:
        """Return the names of a level's nodes; a leaf above it stands for itself."""
        found = dict(zip(self.hierarchy.level_targets[:, level].tolist(), self.paths, strict=True))
        return [path[min(level, len(path) - 1)] for _, path in sorted(found.items())]


def find_tree(dataset: str, data_dir: Path, distance: Distance | None = None) -> Tree | None:
    """Return a dataset's tree, of its prepared form or else as the project ships it; None where there is neither.

    Args:
        dataset: its name.
        data_dir: folder of prepared datasets.
        distance: by default that of the recipe.

    Raises:
        UserError: no such dataset, or its prepared form is damaged.
    """
    recipes = [load_recipe(dataset, protocol=protocol) for protocol in PROTOCOLS]
    paths: dict[str, tuple[str, ...]] | None = None
    for name in dict.fromkeys(variant_name(dataset, recipe.data.jpeg_quality) for recipe in recipes):
        if paths is None and (prepared := find(name, data_dir)) is not None:
            paths = {path[-1]: tuple(path) for path in prepared.meta["paths"]}
    if paths is None:
        try:
            paths = shipped_paths(dataset)
        except FileNotFoundError:
            return None
    return Tree(Hierarchy.from_paths(paths, distance or recipes[0].distance), tuple(paths.values()))


def tree_of(dataset: str, data_dir: Path, distance: Distance | None = None) -> Tree:
    """Return a dataset's tree; an error says what to do where it is not known."""
    tree = find_tree(dataset, data_dir, distance)
    if tree is None:
        raise UserError(
            f"the tree of {dataset} comes with its data, and {dataset} is not prepared in {data_dir}; "
            f"run: hierbench data prepare {dataset}"
        )
    return tree


def board_of(request: Request) -> Board:
    """Return the leaderboard whose rows a figure shows; at least one of them has a finished run.

    Raises:
        UserError: no such dataset or table, no runs, or none that is finished.
    """
    from hierbench.leaderboard.board import board_from_paper, board_from_runs

    if request.source == "paper":
        return board_from_paper(request.dataset)
    if request.dataset not in recipe_names():
        raise unknown_name("dataset", request.dataset, recipe_names())
    board = board_from_runs(request.dataset, Store(request.runs), protocol=request.protocol)
    if not any(row.n for row in board.rows):
        raise UserError(f"no run of {request.dataset} in {request.runs} is finished yet")
    return board


def finished_runs(request: Request, row: Row) -> list[Run]:
    """Return the finished runs behind a row, by seed."""
    return [run for run in map(Store(request.runs).run, row.runs) if run.done]


def remarks_on(board: Board) -> list[str]:
    """Return what stands below the table of a leaderboard: settings, and rows that lack runs."""
    settings = [f"settings: {board.remark}"] if board.remark else []
    return settings + [
        f"{row.title}, {row.type}: {row.n} of {row.planned} runs are finished"
        for row in board.rows
        if row.n < row.planned
    ]


def heading(board: Board) -> str:
    """Return the title of a figure of a leaderboard: the dataset, and whose numbers these are."""
    title = load_recipe(board.dataset).title if board.dataset in recipe_names() else board.dataset
    return f"{title}, {'published numbers' if board.protocol == 'published' else f'protocol {board.protocol}'}"


def distance_label(distance: str) -> str:
    """Return what the hierarchical distance of two classes is called on an axis."""
    if distance == "depth":
        return "height of the tree minus depth of the lowest common ancestor"
    return "height of the lowest common ancestor"
