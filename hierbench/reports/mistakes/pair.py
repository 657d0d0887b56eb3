"""The mistakes of two runs on the same test images: how far off each of them is, and which to show.

Shapes: N evaluated test examples, K classes, H the tree's height; axis 0 of a pair's arrays is A, then B.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from hierbench.config.spec import Spec
from hierbench.data.loader import evaluated_rows
from hierbench.data.prepared import Prepared, find, variant_name
from hierbench.hierarchy.tree import Hierarchy, IntArray
from hierbench.metrics import evaluate, top_classes
from hierbench.runs.store import Run, Store
from hierbench.utils.errors import UserError

CHUNK = 4096  # examples at a time: bounds the float64 copies


@dataclass(frozen=True)
class Side:
    """One of the two runs.

    Attributes:
        spec: what was run.
        id: the name of its folder.
        title: the method's, as in the leaderboard.
        metrics: of `hierbench.metrics.evaluate`, over all N examples.
    """

    spec: Spec
    id: str
    title: str
    metrics: dict[str, float]


@dataclass(frozen=True)
class Pair:
    """Two runs and what they predict for the same examples.

    Attributes:
        prepared: the data of both.
        hierarchy: its tree, with the distance of both.
        rows: [N] position of each example in the test split.
        targets: [N] class indices.
        sides: A and B.
        predicted: [2, N] the class that each ranks first.
        heights: [2, N] its distance from the target, 0 where it is right.
        confidence: [2, N] its probability, the softmax of the scores; a re-ranked run has that of its base.
        between: [N] distance between the two predictions.
    """

    prepared: Prepared
    hierarchy: Hierarchy
    rows: IntArray
    targets: IntArray
    sides: tuple[Side, Side]
    predicted: IntArray
    heights: IntArray
    confidence: NDArray[np.float64]
    between: IntArray

    def counts(self) -> IntArray:
        """Return [H + 1, H + 1], how many of the N examples have a height under A (row) and one under B (column)."""
        size = self.hierarchy.height + 1
        return np.bincount(self.heights[0] * size + self.heights[1], minlength=size * size).reshape(size, size)


def read_pair(a: tuple[Spec, Run], b: tuple[Spec, Run], data_dir: Path, store: Store) -> Pair:
    """Read the predictions of two finished runs beside the test examples they are of.

    Raises:
        UserError: they are one run, are not of the same data, protocol and test examples, the prepared data is not
            there or not theirs, or predictions are missing or damaged.
    """
    (spec, run), (other, other_run) = a, b
    if run.folder.name == other_run.folder.name:
        raise UserError(f"A and B are the same run, {run.folder.name[:12]} ({spec.label})")
    _check_comparable(spec, other)
    prepared = _data_of(spec, data_dir)
    hierarchy = prepared.hierarchy(spec.dataset.distance)
    _, labels = prepared.arrays("test")
    rows = evaluated_rows(labels, "test", spec)
    targets = labels[rows]
    first, second = (_read_side(*which, hierarchy, targets, store) for which in (a, b))
    predicted = np.stack([first[1], second[1]])
    return Pair(
        prepared=prepared,
        hierarchy=hierarchy,
        rows=rows,
        targets=targets,
        sides=(first[0], second[0]),
        predicted=predicted,
        heights=hierarchy.distances[targets, predicted],
        confidence=np.stack([first[2], second[2]]),
        between=hierarchy.distances[predicted[0], predicted[1]],
    )


def _check_comparable(a: Spec, b: Spec) -> None:
    names = f"A ({a.label}) and B ({b.label})"
    if a.protocol != b.protocol:
        raise UserError(f"{names} are under two protocols, {a.protocol} and {b.protocol}")
    if a.dataset.distance != b.dataset.distance:
        raise UserError(f"{names} measure two distances, {a.dataset.distance} and {b.dataset.distance}")
    if a.dataset != b.dataset:
        raise UserError(f"{names} are of different data: digests {a.dataset.digest[:12]} and {b.dataset.digest[:12]}")
    for key in ("drop_last", "drop_order"):
        if getattr(a.evaluation, key) != getattr(b.evaluation, key):
            raise UserError(f"{names} are of different test examples: evaluation.{key} is set in one of them")


def _data_of(spec: Spec, data_dir: Path) -> Prepared:
    name, again = spec.dataset.name, f"hierbench data prepare {spec.dataset.name}"
    if spec.dataset.jpeg_quality:
        again += " --protocol authors"
    prepared = find(variant_name(name, spec.dataset.jpeg_quality), data_dir)
    if prepared is None:
        raise UserError(f"the images of {name} are not prepared in {data_dir}; run: {again}")
    tree = prepared.hierarchy(spec.dataset.distance).digest()
    if prepared.digest != spec.dataset.digest or tree != spec.dataset.hierarchy:
        raise UserError(
            f"{prepared.folder} is not the data of the runs: its digest is {prepared.digest[:12]}, theirs is "
            f"{spec.dataset.digest[:12]}; give the folder with theirs by --data-dir"
        )
    return prepared


def _read_side(
    spec: Spec, run: Run, hierarchy: Hierarchy, targets: IntArray, store: Store
) -> tuple[Side, IntArray, NDArray[np.float64]]:
    """Return a run with the class it ranks first and the confidence in it, [N] each."""
    scores = _scores(run, hierarchy, targets)
    predicted = torch.cat([top_classes(chunk, 1)[:, 0] for chunk in scores.split(CHUNK)])
    logits = scores if spec.base is None else _scores(store.run(spec.base), hierarchy, targets)
    chosen = zip(logits.split(CHUNK), predicted.split(CHUNK), strict=True)
    confidence = [chunk.double().softmax(dim=1).gather(1, classes[:, None])[:, 0] for chunk, classes in chosen]
    metrics = evaluate(scores, torch.from_numpy(targets), hierarchy)
    side = Side(spec, run.folder.name, str(run.metrics()["title"]), metrics)
    return side, predicted.numpy(), torch.cat(confidence).numpy()


def _scores(run: Run, hierarchy: Hierarchy, targets: IntArray) -> torch.Tensor:
    again = f"remove the folder {run.folder} to run it again"
    try:
        scores, stored = run.predictions()
    except ValueError as error:
        raise UserError(f"{error}; {again}") from None
    shape = (len(targets), hierarchy.num_classes)
    if scores.shape != shape or scores.dtype.kind != "f" or not np.array_equal(stored, targets):
        problem = (
            f"{scores.shape} scores and their targets are not those of {shape[0]} test examples, {shape[1]} classes"
        )
    elif np.isnan(scores).any():
        problem = "a score is NaN"
    else:
        return torch.from_numpy(scores)
    raise UserError(f"predictions of run {run.folder.name[:12]} are damaged: {problem}; {again}")


def choose(heights: IntArray, between: IntArray, confidence: NDArray[np.float64], limit: int) -> IntArray:
    """Choose which mistakes to show: the largest disagreements, and some of each height and pair of heights.

    Disagreement is the difference of the two heights; among equals the distance between the predictions counts, then
    the confidence in a wrong one. Half of the places go to the heights of each run and to their pairs in turn, so
    that one with few mistakes is there with all of them and a frequent height with more than its extremes.

    Args:
        heights: [2, N], 0 where the prediction is right.
        between: [N] distance between the two predictions.
        confidence: [2, N].
        limit: at most so many.

    Returns:
        Positions of examples that A or B gets wrong, the largest disagreement first.
    """
    surest = np.nan_to_num(np.where(heights > 0, confidence, 0.0)).max(axis=0)
    order = np.lexsort((-surest, -between, -np.abs(heights[0] - heights[1])))
    order = order[(heights[:, order] > 0).any(axis=0)]
    if len(order) <= limit:
        return order
    a, b = heights[:, order]
    singles = [order[side == height] for side in (a, b) for height in np.unique(side) if height > 0]
    cells = a * (b.max() + 1) + b
    pairs = [order[cells == cell] for cell in np.unique(cells)]
    groups = sorted(singles, key=len) + sorted(pairs, key=len)

    def first_of_each(share: int) -> list[int]:
        return list(dict.fromkeys(np.concatenate([group[:share] for group in groups]).tolist()))

    share = bisect_right(range(limit + 1), limit // 2, lo=1, key=lambda share: len(first_of_each(share))) - 1
    chosen = np.zeros(heights.shape[1], dtype=np.bool_)
    chosen[first_of_each(max(share, 1))[: min(limit, max(limit // 2, len(singles)))]] = True
    rest = order[~chosen[order]]
    chosen[rest[: limit - chosen.sum()]] = True
    return order[chosen[order]]
