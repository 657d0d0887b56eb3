"""The cost of a method alone: forward pass, loss and backward pass from features, against HAFrame's.

Shapes: B batch, D features, K classes.
"""

import statistics
from collections.abc import Callable
from typing import Any

import torch

from hierbench.api.method import Method
from hierbench.api.registry import Found, find_all
from hierbench.experiments.bench_features import UNITS
from hierbench.hierarchy.tree import Hierarchy
from hierbench.methods.haframe import HAFrame
from hierbench.planning.timing import in_turn, median_ratio

REPEATS = 3  # between two clock readings


def trained_methods() -> list[type[Method]]:
    """Return the classes of all methods that are found and trained, in the order of their names."""
    found = (found.cls for found in find_all() if isinstance(found, Found))
    return [cls for cls in found if issubclass(cls, Method)]


def measure_methods(device: str, rounds: int, batch: int, tree: Hierarchy) -> list[dict[str, Any]]:
    """Measure every trained method in float32 on noise in place of features: D = K, as type II has it, where it can.

    Returns:
        A dict per method: its name, "features" D, "ms" of a forward and backward pass, and "ratio" to HAFrame's, a
        median over rounds; in each round HAFrame is measured right before every one.
    """
    haframe = _pass(HAFrame, tree, tree.num_classes, batch, device)
    found, functions = list[tuple[type[Method], int]](), list[Callable[[], None]]()
    for cls in trained_methods():
        num_features = tree.num_classes if "type-II" in cls.types else UNITS
        found.append((cls, num_features))
        functions += [haframe, _pass(cls, tree, num_features, batch, device)]
    columns = iter(in_turn(functions, rounds, device))
    return [
        {
            "method": cls.name,
            "features": num_features,
            "ms": 1000 * statistics.median(own) / REPEATS,
            "ratio": median_ratio(own, reference),
        }
        for (cls, num_features), reference, own in zip(found, columns, columns, strict=True)
    ]


def _pass(cls: type[Method], tree: Hierarchy, num_features: int, batch: int, device: str) -> Callable[[], None]:
    """Return a function that does `REPEATS` forward and backward passes of a method, without an optimizer."""
    method = cls(tree, num_features, cls.Params()).to(device).train()
    features = torch.randn(batch, num_features, device=device)
    targets = torch.randint(tree.num_classes, (batch,)).to(device)

    def several() -> None:
        for _ in range(REPEATS):
            method.zero_grad()
            outputs = method(features.detach().requires_grad_())
            torch.stack(list(method.loss(outputs, targets).values())).sum().backward()

    return several
