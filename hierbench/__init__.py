"""hierbench compares hierarchy-aware image classifiers on the same backbones, data, seeds and metrics.

Quick start, in a terminal: `hierbench run --methods paper --dataset shapes` trains the methods on a small dataset and
prints their leaderboard; `hierbench --help` lists the commands. In Python:

    import numpy as np
    from hierbench import Hierarchy, evaluate

    tree = Hierarchy.from_paths({"oak": ("plant", "oak"), "fern": ("plant", "fern"), "cat": ("animal", "cat")})
    scores = np.random.rand(10, 3)  # [N, K], a column per class in the tree's order, larger = ranked earlier
    targets = np.random.randint(3, size=10)  # [N]
    print(evaluate(scores, targets, tree, ks=(1, 2)))

Public names:

    run             train the missing runs of a comparison and return its leaderboard
    board           the leaderboard of all runs of a dataset, or a published one
    Board           a leaderboard: rows, frame, plot, compare; a notebook shows it as a table
    answer_board    what the methods of a board answer under decision rules
    score           metrics with intervals of predictions made elsewhere
    report          a page on predictions: mistakes, what to answer when unsure, whether another model is better
    metrics         functions of predictions on a tree: metrics.hf1_score(y_true, y_pred, tree) and others
    Hierarchy       a label tree: classes, levels, distances; from_paths, from_edges, read, load
    evaluate        top-1 accuracy, mistake severity and hierarchical distance at k, of scores and targets
    Method          base class of a method that is trained
    PostHoc         base class of a method that re-ranks another one's predictions
    hyperparameter  declares a hyperparameter of a method: default, bounds, grid

`hierbench methods new NAME` writes a commented template of a method.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hierbench import metrics

    __version__: str
    from hierbench.api.method import Method, PostHoc, hyperparameter
    from hierbench.hierarchy.label_tree import Hierarchy
    from hierbench.leaderboard.board import Board
    from hierbench.metrics import evaluate
    from hierbench.python.answering import answer_board
    from hierbench.python.boards import board
    from hierbench.python.reporting import report
    from hierbench.python.running import run
    from hierbench.python.scoring import score

__all__ = [
    "Board",
    "Hierarchy",
    "Method",
    "PostHoc",
    "answer_board",
    "board",
    "evaluate",
    "hyperparameter",
    "metrics",
    "report",
    "run",
    "score",
]

# Names load on first use: `import hierbench` must not pay for torch.
_MODULE_BY_NAME = {
    "Board": "hierbench.leaderboard.board",
    "Hierarchy": "hierbench.hierarchy.label_tree",
    "Method": "hierbench.api.method",
    "PostHoc": "hierbench.api.method",
    "answer_board": "hierbench.python.answering",
    "board": "hierbench.python.boards",
    "evaluate": "hierbench.metrics",
    "hyperparameter": "hierbench.api.method",
    "report": "hierbench.python.reporting",
    "run": "hierbench.python.running",
    "score": "hierbench.python.scoring",
}


def __getattr__(name: str) -> Any:
    if name == "metrics":
        return import_module("hierbench.metrics")
    if name in _MODULE_BY_NAME:
        return getattr(import_module(_MODULE_BY_NAME[name]), name)
    if name == "__version__":  # as the package was installed, from the git tag
        return import_module("importlib.metadata").version("hierbench")
    raise AttributeError(f"module 'hierbench' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
