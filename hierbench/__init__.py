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
    from hierbench.api.method import Method, PostHoc, hyperparameter
    from hierbench.hierarchy.tree import Hierarchy
    from hierbench.metrics import evaluate

__all__ = ["Hierarchy", "Method", "PostHoc", "evaluate", "hyperparameter"]
__version__ = "0.1.0"

# Names load on first use: `import hierbench` must not pay for torch.
_HOME = {
    "Hierarchy": "hierbench.hierarchy.tree",
    "Method": "hierbench.api.method",
    "PostHoc": "hierbench.api.method",
    "evaluate": "hierbench.metrics",
    "hyperparameter": "hierbench.api.method",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'hierbench' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
