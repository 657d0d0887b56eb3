"""The metrics of a run, computed again from its stored predictions.

Shapes: N examples, K classes, k ranked classes.
"""

import math
import os
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hierbench.config.spec import DatasetSpec
from hierbench.data.loader import evaluated_rows
from hierbench.data.prepared import Prepared, find_for_spec
from hierbench.hierarchy.label_tree import Hierarchy, IntArray
from hierbench.metrics.bootstrap import bootstrap_intervals
from hierbench.metrics.sums import DEFAULT_KS, contributions, usable_ks
from hierbench.runs import compact
from hierbench.runs.integrity import PREDICTIONS
from hierbench.runs.record import Record
from hierbench.runs.run_check import Facts, RunCheck
from hierbench.runs.scored_record import make_scored
from hierbench.runs.state import State
from hierbench.utils.arrays import load_arrays
from hierbench.utils.errors import UserError

RESAMPLES = 1000  # of an interval
NOISE = 0.3  # the share of its width by which other draws may move an end
OTHER_TARGETS = "its targets are not those of the dataset's test split"
Loaded = tuple[NDArray[Any], IntArray]  # scores [N, K], targets [N]


def load_predictions(record: Record, tree: Hierarchy) -> Loaded:
    """Return scores [N, K] and targets [N]; an OSError or ValueError if they are missing, damaged or do not fit."""
    scores, targets = load_arrays(record.folder / PREDICTIONS, "scores", "targets")
    if scores.ndim != 2 or scores.dtype.kind != "f" or scores.shape[1] != tree.num_classes:
        raise ValueError(f"scores {scores.shape} {scores.dtype} are not those of {tree.num_classes} classes")
    return scores, _check_targets(targets, len(scores), tree)


Ranks = tuple[IntArray, IntArray]  # ranked classes [N, k] and targets [N]


class Targets:
    """The expected targets of runs, from prepared data, where it is here."""

    def __init__(self, data_dir: Path, folder: Path) -> None:
        self.data_dir = data_dir
        self.folder = folder
        self._prepared: dict[DatasetSpec, Prepared | None] = {}
        self._cached: dict[tuple[Any, ...], IntArray | None] = {}

    def of(self, check: RunCheck) -> IntArray | None:
        """Return the targets [N] of a run's data, None where the data is not here."""
        data = check.dataset
        spec = check.record.spec
        rows = None if spec is None else spec.evaluation
        key = (data, None if rows is None else (rows.drop_last, rows.drop_order))
        if key not in self._cached:
            prepared = self._find(data)
            targets = None
            if prepared is not None and prepared.digest == data.digest:
                _, labels = prepared.arrays("test")
                targets = labels if spec is None else labels[evaluated_rows(labels, "test", spec)]
            self._cached[key] = targets
        return self._cached[key]

    def with_digest(self, check: RunCheck, digest: str) -> IntArray | None:
        """Return the targets [N] that have a digest: of prepared data, or those kept beside the records; or None."""
        targets = self.of(check)
        if targets is None and os.path.lexists(self.folder / compact.TARGETS):
            targets = compact.read_targets(self.folder)
        return targets if targets is not None and compact.digest_of_targets(targets) == digest else None

    def _find(self, data: DatasetSpec) -> Prepared | None:
        if data not in self._prepared:
            try:
                self._prepared[data] = find_for_spec(data, self.data_dir)
            except UserError:  # damaged data is no evidence
                self._prepared[data] = None
        return self._prepared[data]


def recompute(
    check: RunCheck, tree: Hierarchy, reference_targets: Targets, bases: Sequence[RunCheck] = ()
) -> Ranks | None:
    """Compute a run's metrics from its predictions, and compare; the verdict is "recomputed" if they agree.

    A ranking that follows from the best classes of the run's base is made of them.

    Returns:
        their source, or None.
    """
    try:
        ranks = _read_ranks(check, tree, reference_targets)
        if ranks is None and bases and check.record.spec is not None and check.record.spec.follows_from_base:
            base_ranks = _read_ranks(bases[0], tree, reference_targets)
            ranks = base_ranks and (compact.nearest_classes(base_ranks[0][:, 0], tree), base_ranks[1])
        if ranks is None:
            return None
        ranked, targets = ranks
        metrics, mistakes = compact.metrics_of_ranked(ranked, targets, tree)
        expected = reference_targets.of(check)
        check.facts = _facts(ranked, targets, compared=expected is not None)
        check.targets = check.facts.targets
    except (OSError, ValueError) as error:
        check.reject(f"predictions cannot be read: {error}")
        return None
    if expected is not None and not np.array_equal(expected, targets):
        check.reject(OTHER_TARGETS)
    recorded = check.record.result["test"]
    for name in sorted({*metrics, *recorded}):
        value: float | str | None = metrics.get(name, "absent")
        if isinstance(value, float) and math.isnan(value):
            value = None
        if recorded.get(name, "absent") != value:
            check.reject(f"{name} is {recorded.get(name, 'absent')} in metrics.json, and {value} by its predictions")
    if check.record.result.get("mistakes_by_distance") != mistakes:
        check.reject("mistakes_by_distance in metrics.json is not that of its predictions")
    if check.record.scored is not None:
        _check_intervals(check, ranked, targets, tree)
    recorded_num = check.record.environment["data"]["splits"].get("test")
    drops = check.record.spec is not None and check.record.spec.evaluation.drop_last
    if check.record.spec is not None and not drops and recorded_num != len(targets):
        check.reject(f"it predicts {len(targets)} examples, and its environment has {recorded_num} test images")
    if not check.rejected:
        check.confirm(State.RECOMPUTED)
    return ranks


def _check_intervals(check: RunCheck, ranked: IntArray, targets: IntArray, tree: Hierarchy) -> None:
    """Reject recorded intervals that the predictions do not give, up to noise: the draws are not recorded."""
    recorded = check.record.result.get("intervals", {})
    ks = [k for k in usable_ks(DEFAULT_KS, tree.num_classes) if k <= ranked.shape[1]]
    again = bootstrap_intervals(contributions(ranked, targets, tree, ks), ks, RESAMPLES) if recorded else {}
    for name, recomputed in again.items():
        ends = recorded.get(name, [None, None])
        room = NOISE * (recomputed[1] - recomputed[0])  # NaN without mistakes
        if (
            any(end is None or abs(end - end_again) > room for end, end_again in zip(ends, recomputed, strict=True))
            and room == room
        ):
            about = f"about [{recomputed[0]:.6g}, {recomputed[1]:.6g}] by its predictions"
            check.reject(f"the interval of {name} is {ends} in metrics.json, and {about}")


def _read_ranks(check: RunCheck, tree: Hierarchy, reference_targets: Targets) -> Ranks | None:
    """Return ranked classes [N, k] and targets [N], from whichever form of the predictions is here, or None."""
    packed = _read_compact(check) if os.path.lexists(check.record.folder / compact.COMPACT_FILE) else None
    if check.record.has_predictions:
        if check.record.scored is not None:
            ranked, targets = _rank_scored(check, tree)
        else:
            scores, targets = load_predictions(check.record, tree)
            ranked = compact.ranked_classes(scores)
        if packed is not None and not np.array_equal(packed.ranked, ranked[:, : packed.ranked.shape[1]]):
            check.reject(f"{compact.COMPACT_FILE} ranks other classes than {PREDICTIONS}")
        return ranked, targets
    if packed is None:
        return None
    if packed.num_classes != tree.num_classes:
        raise ValueError(f"{compact.COMPACT_FILE} is of {packed.num_classes} classes, the tree has {tree.num_classes}")
    targets_with_digest = reference_targets.with_digest(check, packed.targets)
    if targets_with_digest is None:
        check.targets = packed.targets
        if reference_targets.of(check) is not None:
            check.reject(OTHER_TARGETS)
            return None
        check.note(
            f"not computed from {compact.COMPACT_FILE}: no targets with its digest, neither in {compact.TARGETS} nor "
            "prepared"
        )
        return None
    return packed.ranked, _check_targets(targets_with_digest, len(packed.ranked), tree)


def _read_compact(check: RunCheck) -> compact.Compact:
    packed = compact.read_compact(check.record.folder)
    if packed.source != check.record.recorded_digest(PREDICTIONS):
        check.reject(f"{compact.COMPACT_FILE} was not made from the {PREDICTIONS} that status.json records")
    return packed


def _rank_scored(check: RunCheck, tree: Hierarchy) -> tuple[IntArray, IntArray]:
    """Return ranked classes and targets of scored predictions, after comparing their digest with the record's."""
    assert check.record.scored is not None
    scores: NDArray[Any] | None
    if check.record.scored.top is None:
        scores, targets = load_predictions(check.record, tree)
        classes = None
        ranked = compact.ranked_classes(scores)
    else:
        path = check.record.folder / PREDICTIONS
        classes, scores, targets = load_arrays(path, "classes", "scores_of_classes?", "targets")
        if classes.ndim != 2 or classes.dtype.kind != "i" or classes.min() < 0 or classes.max() >= tree.num_classes:
            raise ValueError("its ranked classes are not classes")
        targets = _check_targets(targets, len(classes), tree)
        ranked = classes
    if make_scored(check.record.scored.name, check.record.scored.dataset, scores, classes, targets).id != check.id:
        check.reject("its predictions are not those whose digest is in spec.json")
    return ranked, targets


def _check_targets(targets: NDArray[Any], num: int, tree: Hierarchy) -> IntArray:
    """Return targets [N] after checking that each is a class."""
    if targets.shape != (num,) or targets.dtype.kind not in "iu" or not num:
        raise ValueError(f"targets {targets.shape} {targets.dtype} are not those of {num} examples")
    if not 0 <= targets.min() <= targets.max() < tree.num_classes:
        raise ValueError("a target is not a class")
    return targets.astype(np.int64)


def _facts(ranked: IntArray, targets: IntArray, *, compared: bool) -> Facts:
    return Facts(
        num=len(targets),
        num_ranked=ranked.shape[1],
        ranking=sha256(np.ascontiguousarray(ranked, dtype="<i4").data).hexdigest(),
        targets=compact.digest_of_targets(targets),
        compared=compared,
    )
