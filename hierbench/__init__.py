"""hierbench compares hierarchy-aware image classifiers on the same backbones, data, seeds and metrics."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hierbench.hierarchy import Hierarchy
    from hierbench.method import Method, PostHoc, hyperparameter
    from hierbench.metrics import evaluate

__all__ = ["Hierarchy", "Method", "PostHoc", "evaluate", "hyperparameter"]
__version__ = "0.1.0"

# Names load on first use: `import hierbench` must not pay for torch.
_HOME = {
    "Hierarchy": "hierbench.hierarchy",
    "Method": "hierbench.method",
    "PostHoc": "hierbench.method",
    "evaluate": "hierbench.metrics",
    "hyperparameter": "hierbench.method",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'hierbench' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
