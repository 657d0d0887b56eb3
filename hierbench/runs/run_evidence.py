"""The evidence of a finished run, from which metrics and curves are computed: predictions, confidence and tree.

Shapes: N examples, K classes, L levels.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hierbench.config.recipe import image_dataset, recipe_names
from hierbench.config.spec import DatasetSpec
from hierbench.data.prepared import find_for_spec, how_to_prepare
from hierbench.hierarchy.label_tree import Hierarchy, IntArray
from hierbench.hierarchy.readers import shipped_paths
from hierbench.metrics.calibration import ScoreKind, as_probabilities, probability_rows
from hierbench.metrics.metric_inputs import Evidence
from hierbench.runs.further_metrics import first_base
from hierbench.runs.record import Record
from hierbench.runs.records import Records
from hierbench.utils.errors import UserError


class Trees:
    """The trees of runs' data, each read once: from the prepared data, else from the trees that ship."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self._tree_by_data: dict[DatasetSpec, Hierarchy | None] = {}

    def of(self, data: DatasetSpec) -> Hierarchy:
        """Return the tree that a run's data is on; a UserError if it is not here."""
        tree = self.find(data)
        if tree is None:
            raise UserError(self.missing(data))
        return tree

    def find(self, data: DatasetSpec) -> Hierarchy | None:
        """Return the tree that a run's data is on, or None if it is not here."""
        if data not in self._tree_by_data:
            tree = next((tree for tree in self._candidates(data) if tree.digest() == data.hierarchy), None)
            self._tree_by_data[data] = tree
        return self._tree_by_data[data]

    def missing(self, data: DatasetSpec) -> str:
        """Return why a tree is not here."""
        if self._candidates(data):
            return (
                f"the tree of {data.name} in {self.data_dir} is not that of the runs, whose digest is "
                f"{data.hierarchy[:12]}; give the folder with their data by --data-dir"
            )
        return (
            f"the tree of {data.name} comes with its data, and {data.name} is not prepared in {self.data_dir}; "
            f"run: {how_to_prepare(data)}"
        )

    def _candidates(self, data: DatasetSpec) -> list[Hierarchy]:
        prepared = find_for_spec(data, self.data_dir)
        trees = list[Hierarchy]()
        if prepared is not None:
            trees.append(prepared.hierarchy(data.distance))
        if data.name in recipe_names():
            try:
                trees.append(Hierarchy.from_paths(shipped_paths(image_dataset(data.name)), data.distance))
            except FileNotFoundError:
                pass
        return trees


def read_evidence(
    record: Record, records: Records, hierarchy: Hierarchy, examples: IntArray | None = None
) -> Iterator[Evidence] | None:
    """Return the inputs of a finished run's metrics, in parts of the examples that fit into memory.

    The probabilities are the scores where these are a distribution, else the softmax of the scores: of the run's own
    if it is trained, of its first base's if it re-ranks.

    Args:
        record: finished.
        records: where its base is.
        hierarchy: its tree.
        examples: [N] the targets that the predictions must be of, if known.

    Returns:
        None for scored predictions that rank a few classes alone.

    Raises:
        UserError: predictions are damaged, or not of this tree or these examples.
    """
    if record.scored is not None and record.scored.top is not None:
        return None
    scores, targets, levels = _predictions(record, hierarchy, examples)
    base = first_base(record, records)
    kind = _kind(scores)
    if record.scored is not None and record.scored.scores is not None:
        kind = record.scored.scores
    sources = scores  # of the probabilities
    if base is not None and kind == "logits":
        sources = _predictions(base, hierarchy, targets.numpy())[0]
        kind = _kind(sources)
    return (
        Evidence(
            scores[rows],
            targets[rows],
            hierarchy,
            as_probabilities(sources[rows], kind),
            None if levels is None else levels[rows],
        )
        for rows in Evidence.rows_of_parts(*scores.shape)
    )


def _kind(scores: Tensor) -> ScoreKind:
    """Return what the scores of a method are: a row of logits may look like probabilities by chance."""
    parts = (probability_rows(scores[rows]).all() for rows in Evidence.rows_of_parts(*scores.shape))
    return "probabilities" if all(map(bool, parts)) else "logits"


def evidence_of_ranks(ranked: IntArray, targets: IntArray, hierarchy: Hierarchy) -> Evidence:
    """Return the evidence of ranked classes [N, k] and targets [N], for metrics that follow from ranks alone."""
    scores = torch.zeros(len(ranked), hierarchy.num_classes)
    places = torch.arange(ranked.shape[1], 0, -1, dtype=torch.float32).expand(ranked.shape)
    scores.scatter_(1, torch.from_numpy(ranked), places)
    return Evidence(scores, torch.from_numpy(targets), hierarchy, scores)


def _predictions(
    record: Record, hierarchy: Hierarchy, examples: IntArray | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return scores [N, K], targets [N] and level-wise predictions [N, L] or None, after checking that they fit."""
    try:
        scores, targets = record.predictions()
        levels = record.level_predictions()
        problem = _problem(scores, targets, levels, hierarchy, examples)
        if problem:
            raise ValueError(f"predictions of run {record.id[:12]} are damaged: {problem}")
    except ValueError as error:
        raise UserError(f"{error}; remove the folder {record.folder} to run it again") from None
    return torch.from_numpy(scores), torch.from_numpy(targets), None if levels is None else torch.from_numpy(levels)


def _problem(
    scores: NDArray[Any],
    targets: NDArray[Any],
    levels: NDArray[Any] | None,
    hierarchy: Hierarchy,
    order: IntArray | None,
) -> str:
    """Return the problem of stored predictions, "" without one."""
    expected = (targets.size if order is None else len(order), hierarchy.num_classes)
    if scores.ndim == 2 and scores.size and scores.dtype.kind == "f":
        best = torch.from_numpy(scores).amax(dim=1)
        if best.isnan().any():
            return "a score is NaN"
        if best.isinf().any():
            return "a row has +inf, or nothing but -inf"
    fit = scores.shape == expected and scores.dtype.kind == "f" and targets.ndim == 1 and targets.dtype.kind == "i"
    if not fit or not (order is None or np.array_equal(targets, order)):
        expected_size = f"{expected[0]} test examples, {expected[1]} classes"
        return f"{scores.shape} scores and their targets are not those of {expected_size}"
    if not len(targets) or not 0 <= targets.min() <= targets.max() < hierarchy.num_classes:
        return "a target is not a class" if len(targets) else "there are none"
    sizes = np.array(hierarchy.level_sizes)
    if levels is not None and (
        levels.shape != (len(targets), len(sizes))
        or levels.dtype.kind != "i"
        or ((levels < 0) | (levels >= sizes)).any()
    ):
        return "a level-wise prediction is not a node of its level"
    return ""
