"""The mistakes of two runs on the same test images: the distance of each, and which to show.

Shapes: N evaluated test examples, K classes, L levels, H the tree's height; axis 0 of a pair's arrays is A, then B.
"""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from hierbench.config.spec import Spec
from hierbench.data.loader import evaluated_rows
from hierbench.data.prepared import Prepared, find_for_spec, how_to_prepare
from hierbench.figures.plots.figure_data import BY_LEVEL, CLIMBING, Floats, level_names, risk_over_coverage
from hierbench.hierarchy.label_tree import Hierarchy, IntArray
from hierbench.metrics.metric_inputs import Evidence
from hierbench.metrics.metric_table import PAPER_NAMES, compute_in_parts, find_metric
from hierbench.runs.record import Record, Records
from hierbench.runs.run_evidence import read_evidence
from hierbench.utils.errors import UserError


class Side(NamedTuple):
    """One of the two runs: its method's title as in the leaderboard, and its predictions for all N examples.

    Attributes:
        metrics: the paper's, as of `hierbench.metrics.evaluate`.
        levels: [2, L] accuracy in per cent, of the class ranked first and of lifted probabilities.
        risk: of the climbing rule at `hierbench.figures.plots.figure_data.COVERAGES`.
        area: under the climbing rule's operating curve, hAURC.
    """

    spec: Spec
    id: str
    title: str
    metrics: dict[str, float]
    levels: Floats
    risk: Floats
    area: float


@dataclass(frozen=True)
class Pair:
    """Runs A and B on the same prepared data, and their predictions for the same examples."""

    prepared: Prepared
    hierarchy: Hierarchy
    rows: IntArray  # [N] position of each example in the test split
    targets: IntArray  # [N] class indices
    sides: tuple[Side, Side]
    predicted: IntArray  # [2, N] the class that each ranks first
    heights: IntArray  # [2, N] its distance from the target, 0 where it is right
    confidence: Floats  # [2, N] its probability, see `hierbench.runs.run_evidence`
    between: IntArray  # [N] distance between the two predictions

    def counts(self) -> IntArray:
        """Return [H + 1, H + 1], how many of the N examples have a height under A (row) and one under B (column)."""
        size = self.hierarchy.height + 1
        return np.bincount(self.heights[0] * size + self.heights[1], minlength=size * size).reshape(size, size)


def read_pair(a: Record, b: Record, data_dir: Path, records: Records) -> Pair:
    """Read the predictions of two finished runs with the test examples they are of.

    Raises:
        UserError: they are one run, or of different data, protocols or test examples; the prepared data is absent or
            not theirs; or predictions are missing or damaged.
    """
    spec = a.job
    if a.id == b.id:
        raise UserError(f"A and B are the same run, {a.id[:12]} ({spec.label})")
    _check_comparable(spec, b.job)
    prepared = _open_data(spec, data_dir)
    hierarchy = prepared.hierarchy(spec.dataset.distance)
    _, labels = prepared.arrays("test")
    rows = evaluated_rows(labels, "test", spec)
    targets = labels[rows]
    sides, predictions, confidences = zip(
        *(_read_side(which, hierarchy, targets, records) for which in (a, b)), strict=True
    )
    predicted = np.stack(predictions)
    return Pair(
        prepared,
        hierarchy,
        rows,
        targets,
        sides,
        predicted,
        heights=hierarchy.distances_between(targets, predicted),
        confidence=np.stack(confidences),
        between=hierarchy.distances_between(predicted[0], predicted[1]),
    )


def _check_comparable(a: Spec, b: Spec) -> None:
    compared = {
        "are under two protocols": (a.protocol, b.protocol),
        "measure two distances": (a.dataset.distance, b.dataset.distance),
        "are of different data": tuple(f"{d.digest[:12]} on tree {d.hierarchy[:12]}" for d in (a.dataset, b.dataset)),
    }
    problems = [f"{key}, {first} and {other}" for key, (first, other) in compared.items() if first != other]
    problems += [
        f"are of different test examples: evaluation.{key} is set in one of them"
        for key in ("drop_last", "drop_order")
        if getattr(a.evaluation, key) != getattr(b.evaluation, key)
    ]
    if problems:
        raise UserError(f"A ({a.label}) and B ({b.label}) {problems[0]}")


def _open_data(spec: Spec, data_dir: Path) -> Prepared:
    data = spec.dataset
    prepared = find_for_spec(data, data_dir)
    if prepared is None:
        raise UserError(f"the images of {data.name} are not prepared in {data_dir}; run: {how_to_prepare(data)}")
    if prepared.digest != data.digest or prepared.hierarchy(data.distance).digest() != data.hierarchy:
        raise UserError(
            f"{prepared.folder} is not the data of the runs: its digest is {prepared.digest[:12]}, theirs is "
            f"{data.digest[:12]}; give the folder with theirs by --data-dir"
        )
    return prepared


def _read_side(
    record: Record, hierarchy: Hierarchy, targets: IntArray, records: Records
) -> tuple[Side, IntArray, Floats]:
    """Return a run with the class it ranks first and the confidence in it, [N] each."""
    tops = list[Tensor]()
    confidences = list[Tensor]()

    def parts() -> Iterator[Evidence]:
        for part in read_evidence(record, records, hierarchy, targets) or ():
            tops.append(part.top)
            confidences.append(part.probabilities.gather(1, part.top[:, None])[:, 0])
            yield part

    names = level_names(hierarchy.num_levels)
    paper_names = [name for name in PAPER_NAMES if find_metric(name).exists_on(hierarchy)]
    metrics = compute_in_parts([*paper_names, *names, CLIMBING], parts())
    if not tops:
        raise UserError(f"run {record.id[:12]} ranks a few classes alone")
    predicted = torch.cat(tops).numpy()
    confidence = torch.cat(confidences).numpy()
    side = Side(
        record.job,
        record.id,
        record.title,
        {name: metrics[name] for name in paper_names},
        np.array([metrics[name] for name in names]).reshape(len(BY_LEVEL), -1),
        risk_over_coverage(read_evidence(record, records, hierarchy, targets) or ()),
        metrics[CLIMBING],
    )
    return side, predicted, confidence


def choose(heights: IntArray, between: IntArray, confidence: Floats, limit: int) -> IntArray:
    """Choose which mistakes to show: the largest disagreements, and some of each height and pair of heights.

    Disagreement is the difference of the two heights; ties are broken by the distance between the predictions, then by
    the confidence in a wrong one. Half of the places go to the heights of each run and to their pairs in turn, so
    that a rare height is shown with all its mistakes and a frequent one with more than its extremes.

    The arrays are those of a `Pair`. Returns the positions of at most `limit` examples that A or B gets wrong, the
    largest disagreement first.
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
