"""Putting predictions in the order of the examples they are of, and checking their targets.

Shapes: N examples.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from os.path import commonprefix
from pathlib import Path, PurePath

import numpy as np

from hierbench.data.prepared import Prepared
from hierbench.data.writer import SPLITS
from hierbench.hierarchy.label_tree import IntArray
from hierbench.studies.scoring.prediction_parts import Predictions
from hierbench.utils.errors import UserError

MAX_CLASS_NAMES = 3  # names in an error
# The compared parts of a name, in this order: programs write whole paths, the last folders, base names, or stems.
KEYS: tuple[Callable[[str], str], ...] = (
    lambda name: name,
    lambda name: "/".join(name.replace("\\", "/").split("/")[-2:]),
    lambda name: name.replace("\\", "/").rpartition("/")[2],
    lambda name: PurePath(name.replace("\\", "/")).stem,
)


def match_rows(ids: Sequence[str], expected_ids: Sequence[str], where: str, subject: str) -> IntArray:
    """Return [N], for each known example the row that predicts it.

    Args:
        ids: names of a file's rows.
        expected_ids: names of the examples.
        where: the file's name, which begins errors.
        subject: the dataset of the examples, for errors.

    Raises:
        UserError: a name is there twice, unknown or missing.
    """
    if len(set(ids)) < len(ids):
        (twice, _), *_ = Counter(ids).most_common(1)
        raise UserError(f"{where}: {len(ids) - len(set(ids)):,} ids are there twice: {twice[:80]!r}")
    best: tuple[list[str], list[str]] = list(ids), list(expected_ids)
    for key in KEYS:
        rows = list(map(key, ids))
        expected_keys = list(map(key, expected_ids))
        if len(set(expected_keys)) == len(expected_keys) and len(set(rows)) == len(rows):
            place = {name: row for row, name in enumerate(rows)}
            if len(rows) == len(expected_keys) and all(name in place for name in expected_keys):
                return np.array([place[name] for name in expected_keys], dtype=np.int64)
            if len(place.keys() & set(expected_keys)) > len(set(best[0]) & set(best[1])):
                best = rows, expected_keys
    rows, expected_keys = best
    problems = []
    sides = ((expected_ids, expected_keys, set(rows), "missing"), (ids, rows, set(expected_keys), f"not of {subject}"))
    for names, keys, others, side in sides:
        odd = [name for name, key in zip(names, keys, strict=True) if key not in others]
        if odd:
            shown = ", ".join(name[:80] for name in odd[:MAX_CLASS_NAMES])
            problems.append(
                f"{len(odd):,} of {len(names):,} ids are {side}: {shown}" + ", ..." * (len(odd) > MAX_CLASS_NAMES)
            )
    raise UserError(f"{where}: {'; '.join(problems)}")


def with_targets(predictions: Predictions, extra: tuple[IntArray, list[str] | None] | None, where: str) -> Predictions:
    """Return predictions with the targets of another file, by ids where both have them.

    Raises:
        UserError: they do not fit, or contradict those of the predictions.
    """
    if extra is None:
        return predictions
    targets, ids = extra
    if len(targets) != predictions.num_examples:
        raise UserError(
            f"{where} has {len(targets):,} targets, {predictions.where} {predictions.num_examples:,} predictions"
        )
    if ids is not None and predictions.ids is not None:
        targets = targets[match_rows(ids, predictions.ids, where, predictions.where)]
    if predictions.targets is not None:
        _compare(predictions.targets, targets, predictions.where, where)
    return replace(predictions, targets=targets)


def of_dataset(predictions: Predictions, prepared: Prepared, split: str) -> Predictions:
    """Return predictions in the order of a prepared split, with its targets, noting missing ids or targets.

    Raises:
        UserError: they are of other examples, or their targets are not those of the dataset.
    """
    _, truth = prepared.arrays(split)
    name = prepared.folder.name
    expected_ids = prepared.ids(split)
    numbers = [str(row) for row in range(len(truth))]
    if predictions.num_examples != len(truth):
        sizes = {other: prepared.size(other) for other in SPLITS}
        like = next(
            (f"; that is the size of {other}" for other in SPLITS if sizes[other] == predictions.num_examples), ""
        )
        raise UserError(
            f"{predictions.where} has {predictions.num_examples:,} predictions, {name} has {len(truth):,} {split} "
            f"images{like}"
        )
    note = ""
    where = predictions.where
    if predictions.ids is not None:
        if set(predictions.ids) == set(numbers):
            expected_ids = numbers
        if expected_ids is not None:
            order = match_rows(predictions.ids, expected_ids, predictions.where, f"{name}'s {split} images")
            if not np.array_equal(order, np.arange(len(order))):  # mapped arrays in order are not copied
                predictions = predictions.take(order)
        elif predictions.targets is None:
            raise UserError(
                f"{predictions.where} has ids, and {name} in {prepared.folder.parent} has no file names to compare "
                f"them with: give targets (a column, or a file of them), or prepare {name} again if its source has "
                "names"
            )
        else:
            note = f"{name} has no file names, so the rows of {where} are taken in their order; its targets fit."
    elif predictions.targets is None:
        note = f"{where} has neither ids nor targets: its rows are taken in the order of {name}'s {split} images."
    if predictions.targets is not None:
        _compare(
            predictions.targets,
            truth,
            predictions.where,
            f"{name}'s {split} images",
            ordered=predictions.ids is not None,
        )
    return replace(predictions, targets=truth, notes=(*predictions.notes, *([note] if note else [])))


def _compare(targets: IntArray, truth: IntArray, where: str, whose: str, *, ordered: bool = True) -> None:
    different = np.flatnonzero(targets != truth)
    if not len(different):
        return
    row = int(different[0])
    hint = ""
    if not ordered and np.array_equal(np.sort(targets), np.sort(truth)):
        hint = "; as many of each class, so the rows are in another order: give ids"
    raise UserError(
        f"{where}: {len(different):,} of {len(truth):,} targets are not those of {whose}, first in row {row}: "
        f"{int(targets[row])} instead of {int(truth[row])}{hint}"
    )


def check_same_examples(first: Predictions, other: Predictions) -> None:
    """Raise a UserError unless two files with targets are of the same examples, by ids where both have them."""
    problem = f"{first.where} and {other.where} are not seeds of one model"
    if first.num_examples != other.num_examples:
        raise UserError(f"{problem}: {first.num_examples:,} and {other.num_examples:,} examples")
    targets = other.true_classes
    if first.ids is not None and other.ids is not None:
        targets = targets[match_rows(other.ids, first.ids, other.where, first.where)]
    num_different = int(np.count_nonzero(first.true_classes != targets))
    if num_different:
        raise UserError(f"{problem}: {num_different:,} of {len(targets):,} targets differ")


def check_differs(first: Predictions, other: Predictions) -> None:
    """Raise a UserError where two files have the same scores and ranked classes: one seed would count twice."""
    pairs = ((first.scores, other.scores), (first.classes, other.classes))
    if all(
        first is two or (first is not None and two is not None and np.array_equal(first, two)) for first, two in pairs
    ):
        raise UserError(f"{first.where} and {other.where} hold the same predictions; give each seed once")


def default_name(paths: Sequence[Path]) -> str:
    """Return the name of a row: the common beginning of the files' names, without the number of the seed."""
    stems = [path.stem for path in paths]
    shared = commonprefix(stems)  # noqa: RUF071 - of characters
    return (shared.rstrip("-_. ") if len(stems) > 1 else "") or stems[0]
