"""The order of an epoch: every image once, or every class equally often.

Shapes: N examples, M places in the epoch.
"""

from typing import Literal

import torch
from torch import Tensor


def epoch_order(labels: Tensor, num: int, sampling: Literal["natural", "balanced"]) -> Tensor:
    """Return the rows [M] of an epoch, drawn by PyTorch's default generator on the CPU, the same on every rank.

    "natural" is a random order of all rows, cut after M. In "balanced", the numbers of rows of two classes differ by at
    most one; within a class, all images are drawn before one is drawn again, so that none is drawn two times more often
    than another.

    Args:
        labels: [N] int64, on the CPU.
        num: M, at most N.
        sampling: as `train.sampling`.
    """
    if sampling == "natural":
        return torch.randperm(len(labels))[:num]
    classes, counts = labels.unique(return_counts=True)  # a class without training images is left out
    places = torch.full((len(classes),), num // len(classes))
    places[torch.randperm(len(classes))[: num % len(classes)]] += 1
    rows = labels.argsort(stable=True).split(counts.tolist())
    drawn = [_drawn(own, place) for own, place in zip(rows, places.tolist(), strict=True)]
    return torch.cat(drawn)[torch.randperm(num)]


def _drawn(rows: Tensor, num: int) -> Tensor:
    """Return `num` of a class's rows [n]: as many whole random orders as needed, the last one cut."""
    orders = [rows[torch.randperm(len(rows))] for _ in range(-(-num // len(rows)))]
    return torch.cat([rows[:0], *orders])[:num]
