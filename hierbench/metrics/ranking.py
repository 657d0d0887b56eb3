"""The classes ranked first, ties going to the lower class index.

Shapes: N examples, K classes, k ranked predictions.
"""

from __future__ import annotations

import torch
from torch import Tensor

INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)  # that PyTorch can rank
REALS = (torch.float32, torch.float64, torch.float16, torch.bfloat16, *INTEGERS)


def top_classes(scores: Tensor, k: int) -> Tensor:
    """Return the k best-ranked classes of each row, ties going to the lower class index.

    Args:
        scores: [N, K], larger = ranked earlier.
        k: 1 <= k <= K.

    Returns:
        [N, k] int64 class indices, best first.

    Raises:
        ValueError: the scores are no real numbers, or one is NaN.
    """
    check_scores(scores)
    classes, num_nan = ranked(scores, k)
    raise_for(int(num_nan), 0, scores.shape[1])
    return classes


def ranked(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the k classes ranked first [N, k] and the number of rows with a NaN; waits for no device."""
    if k == scores.shape[1]:
        values, classes = scores.sort(dim=1, descending=True, stable=True)
    else:
        values, classes = scores.topk(k + 1, dim=1)
        classes = classes[:, :k]
        # topk leaves the order among equals open, so rows with equals among the first k + 1 are ranked again.
        rows: Tensor | slice = slice(None)  # of an accelerator all: to ask it which would wait for it
        if scores.device.type == "cpu":
            rows = (values[:, 1:] == values[:, :-1]).any(dim=1).nonzero().squeeze(1)
        if isinstance(rows, slice) or len(rows):
            classes[rows] = ranked_with_ties(scores[rows], values[rows, k - 1 : k], k)
    return classes, values[:, 0].isnan().sum()  # NaN sorts before every number


def ranked_with_ties(scores: Tensor, kth_value: Tensor, k: int) -> Tensor:
    """Take all classes above the k-th value, fill up with the lowest of its equals, and sort the k stably."""
    above, equal = scores > kth_value, scores == kth_value
    places = k - above.sum(dim=1, keepdim=True)
    chosen = above | (equal & (equal.cumsum(dim=1, dtype=torch.int32) <= places))
    index = torch.arange(scores.shape[1], device=scores.device)
    lowest = torch.where(chosen, index, len(index)).topk(k, dim=1, largest=False, sorted=True).values
    classes = lowest.clamp_max(len(index) - 1)  # a row with a NaN, which is an error later, may have fewer than k
    # The classes ascend, so a stable sort keeps the lower index first.
    order = scores.gather(1, classes).sort(dim=1, descending=True, stable=True).indices
    return classes.gather(1, order)


def raise_for(num_nan: int, num_no_class: int, num_classes: int) -> None:
    """Raise the ValueError for so many rows with a NaN and targets that are no class, if any."""
    if num_no_class:
        raise ValueError(f"targets must be integers from 0 to {num_classes - 1}")
    if num_nan:
        raise ValueError("a score is NaN: it has no rank")


def check_scores(scores: Tensor) -> None:
    """Raise a ValueError unless these are real numbers that PyTorch can rank."""
    if scores.dtype not in REALS or scores.layout != torch.strided:
        layout = "" if scores.layout == torch.strided else f" in the layout {dtype_name(scores.layout)}"
        raise ValueError(f"scores must be real numbers, got {dtype_name(scores.dtype)}{layout}")


def dtype_name(kind: torch.dtype | torch.layout) -> str:
    """Return what a dtype or a layout is called, without the module."""
    return str(kind).removeprefix("torch.")
