"""Ranking classes by score; ties go to the lower class index.

Shapes: N examples, K classes, k ranked predictions.
"""

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
REALS = (torch.float32, torch.float64, torch.float16, torch.bfloat16, *INTEGERS)  # that PyTorch can rank
NUMBERS_AT_A_TIME = 2**19  # of float64, 4 MiB, which a cache holds; bounds every table over examples and classes


def top_classes(scores: Tensor | ArrayLike, k: int) -> Tensor:
    """Return the k best-ranked classes of each row, ties going to the lower class index.

    Args:
        scores: [N, K], larger = ranked earlier.
        k: 1 <= k <= K.

    Returns:
        [N, k] int64 class indices, best first.

    Raises:
        ValueError: the scores are not real numbers, or one is NaN.
    """
    scores = as_tensor(scores, "scores must be real numbers [N, K]")
    check_scores(scores)
    classes, num_nan = ranked(scores, k)
    raise_for(int(num_nan), 0, scores.shape[1])
    return classes


def top_class(scores: Tensor | ArrayLike) -> Tensor:
    """Return the best-ranked class of each row, [N] int64, for scores [N, K]; as `top_classes` with k = 1."""
    return top_classes(scores, 1)[:, 0]


def ranked(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the top k classes [N, k] and the number of rows with a NaN, without synchronising with the device."""
    if k == scores.shape[1]:
        values, classes = scores.sort(dim=1, descending=True, stable=True)
    else:
        values, classes = scores.topk(k + 1, dim=1)
        classes = classes[:, :k]
        # topk does not define the order of ties, so rows with ties among the top k + 1 are ranked again.
        rows: Tensor | slice = slice(None)  # all rows on an accelerator, where selecting them would synchronise
        if scores.device.type == "cpu":
            rows = (values[:, 1:] == values[:, :-1]).any(dim=1).nonzero().squeeze(1)
        if isinstance(rows, slice) or len(rows):
            classes[rows] = ranked_with_ties(scores[rows], values[rows, k - 1 : k], k)
    return classes, values[:, 0].isnan().sum()  # NaN sorts before every number


def ranked_with_ties(scores: Tensor, kth_value: Tensor, k: int) -> Tensor:
    """Return the top k [N, k]: all classes above the k-th value, then the lowest indices tied with it."""
    above = scores > kth_value
    equal = scores == kth_value
    places = k - above.sum(dim=1, keepdim=True)
    chosen = above | (equal & (equal.cumsum(dim=1, dtype=torch.int32) <= places))
    index = torch.arange(scores.shape[1], device=scores.device)
    lowest = torch.where(chosen, index, len(index)).topk(k, dim=1, largest=False, sorted=True).values
    classes = lowest.clamp_max(len(index) - 1)  # a row with a NaN, reported later, may have fewer than k
    # The indices ascend, so a stable sort keeps the lower index first.
    order = scores.gather(1, classes).sort(dim=1, descending=True, stable=True).indices
    return classes.gather(1, order)


def as_tensor(values: Tensor | ArrayLike, expectation: str) -> Tensor:
    """Return values as a tensor; raise a ValueError that begins with `expectation` unless they are numbers."""
    if isinstance(values, Tensor):
        return values
    if np.ma.is_masked(values):
        raise ValueError(f"{expectation}, got a masked array")
    try:
        return torch.as_tensor(np.require(values, requirements="W"))  # PyTorch warns of arrays that are read-only
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        if isinstance(values, np.ndarray) and values.dtype.kind not in "fiu":
            raise ValueError(f"{expectation}, got an array of dtype {values.dtype}") from None
        raise ValueError(f"{expectation}, got {type(values).__name__} ({' '.join(str(error).split())[:160]})") from None


def raise_for(num_nan: int, num_no_class: int, num_classes: int) -> None:
    """Raise a ValueError if there are rows with a NaN or targets that are not a class."""
    if num_no_class:
        raise ValueError(f"targets must be integers from 0 to {num_classes - 1}")
    if num_nan:
        raise ValueError("a score is NaN: it has no rank")


def check_scores(scores: Tensor) -> None:
    """Raise a ValueError unless the scores are real numbers that PyTorch can rank."""
    if scores.dtype not in REALS or scores.layout != torch.strided:
        layout = "" if scores.layout == torch.strided else f" in the layout {dtype_name(scores.layout)}"
        raise ValueError(f"scores must be real numbers, got {dtype_name(scores.dtype)}{layout}")


def check_shapes(scores: Tensor, targets: Tensor, num_classes: int) -> None:
    """Raise a ValueError unless there are scores [N, K] that can be ranked and integers [N]."""
    if scores.ndim != 2 or scores.shape[1] != num_classes or targets.shape != scores.shape[:1]:
        shapes = f"{tuple(scores.shape)} and {tuple(targets.shape)}"
        raise ValueError(f"scores and targets must be [N, {num_classes}] and [N], got {shapes}")
    check_scores(scores)
    if len(targets) and (targets.dtype == torch.bool or targets.is_floating_point() or targets.is_complex()):
        raise ValueError(f"targets must be integers from 0 to {num_classes - 1}, got {dtype_name(targets.dtype)}")


def known_targets(targets: Tensor, num_classes: int) -> Tensor:
    """Return targets [N] as int64; raise a ValueError if N is 0 or one is not a class."""
    if not len(targets):
        raise ValueError("no examples to evaluate")
    targets = targets.long()
    raise_for(0, int(((targets < 0) | (targets >= num_classes)).sum()), num_classes)  # host-device sync
    return targets


def dtype_name(dtype: torch.dtype | torch.layout) -> str:
    """Return the name of a dtype or layout without "torch."."""
    return str(dtype).removeprefix("torch.")


def rows_at_a_time(width: int) -> int:
    """Return how many examples to take at a time where a table has `width` numbers for each."""
    return max(1, NUMBERS_AT_A_TIME // max(1, width))


def check_probabilities(probabilities: Tensor, num_classes: int) -> None:
    """Raise a ValueError unless there are [N, K] numbers between 0 and 1, up to rounding."""
    if probabilities.ndim != 2 or probabilities.shape[1] != num_classes or not probabilities.is_floating_point():
        raise ValueError(f"probabilities must be real numbers [N, {num_classes}], got {tuple(probabilities.shape)}")
    if len(probabilities):
        low, high = (float(value) for value in probabilities.aminmax())  # host-device sync
        if not (low >= 0.0 and high <= 1.0 + 1e-3):
            raise ValueError("probabilities must be between 0 and 1")
