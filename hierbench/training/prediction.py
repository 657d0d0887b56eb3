"""Scores of a trained model on a split, and the nodes that it ranks first at each level.

Shapes: B batch, N examples, K classes, L levels, K_l nodes of a level.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from hierbench.api.method import Method, check_shape
from hierbench.data.loader import Split
from hierbench.metrics import top_classes
from hierbench.models import Classifier
from hierbench.utils.arrays import scratch
from hierbench.utils.errors import UserError

if TYPE_CHECKING:
    from lightning_fabric import Fabric

PART = 1 << 22  # scores that are held at a time in validation


def predict(
    fabric: Fabric, model: Classifier, split: Split, *, with_levels: bool = False, folder: Path | None = None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return scores [N, K] float32 and targets [N] of a split's evaluated examples, on the device, on every rank.

    Third, if asked for, the level-wise predictions [N, L] of a method that makes any, else None. On a CPU, more than a
    gibibyte of scores lie in a nameless file in `folder`, if there is one.

    Raises:
        UserError: the result of `Method.level_scores` does not fit the tree, or is NaN.
    """
    method = model.method
    shape = len(split.share), method.hierarchy.num_classes  # a rank may have no images
    if split.device.type == "cpu":
        every = torch.from_numpy(scratch(shape, np.dtype(np.float32), folder))
    else:
        every = torch.empty(shape, device=split.device)
    nodes: list[Tensor | None] = []
    start = 0
    for scores, outputs, _ in _batches(fabric, model, split):
        every[start : start + len(scores)] = scores
        start += len(scores)
        if with_levels:
            nodes.append(level_predictions(method, outputs))
    if with_levels and not nodes:  # a rank without images takes part in the gathering if the others do
        with torch.inference_mode():
            outputs = method(torch.zeros(2, method.num_features, device=split.device))
        some = level_predictions(method, outputs)
        nodes.append(None if some is None else some[:0])
    targets = split.labels[split.evaluated.to(split.device)]
    level_parts = [part for part in nodes if part is not None]
    first = _of_all_ranks(split, torch.cat(level_parts)) if level_parts else None
    return _of_all_ranks(split, every), targets, first


def predict_in_parts(fabric: Fabric, model: Classifier, split: Split) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield scores [n, K] and targets [n] of a split, a part at a time; of several ranks all at once, on each."""
    if split.num_ranks > 1:
        yield predict(fabric, model, split)[:2]
        return
    parts = list[tuple[Tensor, Tensor]]()
    for scores, _, targets in _batches(fabric, model, split):
        parts.append((scores, targets))
        if len(parts) * scores.numel() >= PART:
            yield torch.cat([part for part, _ in parts]), torch.cat([part for _, part in parts])
            parts = []
    if parts:
        yield torch.cat([part for part, _ in parts]), torch.cat([part for _, part in parts])


def _batches(fabric: Fabric, model: Classifier, split: Split) -> Iterator[tuple[Tensor, Any, Tensor]]:
    """Yield scores [B, K] float32, the method's outputs and targets [B] of this rank's batches."""
    model.eval()
    method = model.method
    for images, targets in split.eval_batches():
        with torch.inference_mode():
            with fabric.autocast():  # not around `scores`, which are of full precision as the method's outputs are
                outputs = model(images)
            scores = method.scores(outputs)
            check_shape(scores, (len(images), method.hierarchy.num_classes), f"method {method.name}: scores")
            scores = scores.float()
        yield scores, outputs, targets


def level_predictions(method: Method, outputs: Any) -> Tensor | None:
    """Return the node that is ranked first at each level [B, L] int64, ties to the lower index; None without levels.

    Raises:
        UserError: there is not a tensor [B, K_l] of real numbers for each level.
    """
    levels = method.level_scores(outputs)
    if levels is None:
        return None
    sizes = method.hierarchy.level_sizes
    are_tensors = isinstance(levels, Sequence) and all(isinstance(level, Tensor) for level in levels)
    shapes = [tuple(level.shape) for level in levels] if are_tensors else []
    batch = shapes[0][:1] if shapes else ()
    if not batch or shapes != [(*batch, size) for size in sizes]:
        expected = ", ".join(f"[B, {size}]" for size in sizes)
        raise UserError(f"method {method.name}: level_scores must return a list of tensors {expected}")
    try:
        return torch.cat([top_classes(level, 1) for level in levels], dim=1)
    except ValueError as error:
        raise UserError(f"method {method.name}: level_scores: {error}") from None


def _of_all_ranks(split: Split, rows: Tensor) -> Tensor:
    """Return the rows of all ranks, in the order of the split, given those of this one [n, ...]."""
    if split.num_ranks == 1:
        return rows
    share = -(-len(split.evaluated) // split.num_ranks)
    mine = functional.pad(rows, (0, 0, 0, share - len(rows)))
    every = [torch.empty_like(mine) for _ in range(split.num_ranks)]
    torch.distributed.all_gather(every, mine)
    return torch.cat(every)[: len(split.evaluated)]
