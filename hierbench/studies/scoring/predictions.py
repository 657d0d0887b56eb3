"""Predictions as a file has them, and reading the formats that hold arrays.

Shapes: N examples, K classes, k ranked classes.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hierbench.hierarchy.class_names import NumberOrder, class_indices, in_order_of_tree, number_order, target_indices
from hierbench.hierarchy.label_tree import Hierarchy, IntArray
from hierbench.studies.scoring.column_roles import find_role, refuse_smaller_better
from hierbench.utils.arrays import map_array, read_arrays, with_columns
from hierbench.utils.errors import UserError, error_line
from hierbench.utils.files import read_text

TABLE_SUFFIXES = (".csv", ".parquet", ".json")
PREDICTION_SUFFIXES = (".npz", ".npy", *TABLE_SUFFIXES)
Parts = Mapping[str, NDArray[Any]]  # "scores", "classes", "targets" and "ids" as a file has them: classes may be names
PICKLES = (".pkl", ".pickle", ".pt", ".pth", ".bin", ".joblib")


@dataclass(frozen=True)
class Predictions:
    """The predictions of one file.

    Attributes:
        where: the file's name, which begins errors.
        scores: [N, K], larger = ranked earlier; or [N, k] of the ranked classes; None without scores.
        classes: [N, k] ranked class indices, best first; None where every class has a score.
        targets: [N] class indices, -1 - n for an inner node n, or None.
        ids: names of the N examples, or None.
        columns: in which order the columns of scores were, "" without scores of all classes.
    """

    where: str
    scores: NDArray[Any] | None
    classes: IntArray | None
    targets: IntArray | None
    ids: list[str] | None
    columns: str = ""

    @property
    def num_examples(self) -> int:
        """N."""
        return len(self.all_scores if self.classes is None else self.classes)

    @property
    def all_scores(self) -> NDArray[Any]:
        """[N, K], where classes are not ranked."""
        assert self.scores is not None, self.where
        return self.scores

    @property
    def true_classes(self) -> IntArray:
        """[N] class indices, -1 - n for an inner node n, once targets were found."""
        assert self.targets is not None, self.where
        return self.targets

    def labelled_with_classes(self) -> "Predictions":
        """Return the predictions of the examples whose target is a class."""
        rows = self.true_classes >= 0
        if rows.all():
            return self
        parts = (self.scores, self.classes, self.targets)
        scores, classes, targets = (None if part is None else part[rows] for part in parts)
        ids = None if self.ids is None else [name for name, kept in zip(self.ids, rows, strict=True) if kept]
        return replace(self, scores=scores, classes=classes, targets=targets, ids=ids)


@dataclass(frozen=True)
class Arrays:
    """Predictions that are in memory: scores [N, K] and targets [N], class indices or names, or None.

    `columns` are K names or indices of classes, and `ids` N names of the examples, or None without them.
    """

    where: str
    scores: NDArray[Any]
    targets: NDArray[Any] | None
    columns: Sequence[Any] | None = None
    ids: Sequence[str] | None = None

    def predictions(self, tree: Hierarchy, order: NumberOrder = "tree") -> Predictions:
        """Return them as a file's; a UserError if they do not fit each other or the tree."""
        if self.scores.ndim != 2 or not len(self.scores):
            shape = " x ".join(map(str, self.scores.shape))
            raise UserError(
                f"{self.where} must be [N, {tree.num_classes}], a row per example, got {shape or 'a number'}"
            )
        parts = {"scores": self.scores, "targets": self.targets, "names": self.columns, "ids": self.ids}
        given = {role: np.asarray(values) for role, values in parts.items() if values is not None}
        return _check_parts(given, tree, self.where, order)


def read_predictions(path: Path, tree: Hierarchy, order: NumberOrder = "tree") -> Predictions:
    """Read a file of predictions over the classes of a tree, which are in this order where they have no names.

    Raises:
        UserError: it cannot be read, is damaged, or does not fit the tree.
    """
    kind = path.suffix.lower()
    if kind in PICKLES:
        raise UserError(f"{path.name}: pickles can run any code and are never read; save arrays with numpy.savez")
    if kind not in PREDICTION_SUFFIXES:
        raise UserError(
            f"{path.name}: predictions are {', '.join(PREDICTION_SUFFIXES)} files, not {kind or 'without an ending'!r}"
        )
    with _one_line(path, path.name):
        predictions = _check_parts(_read_parts(path, tree), tree, path.name, order)
    if not predictions.num_examples:
        raise UserError(f"{path.name} has no predictions")
    return predictions


def read_targets(
    path: Path, tree: Hierarchy, name: str = "--targets", order: NumberOrder | None = None
) -> tuple[IntArray, list[str] | None]:
    """Read targets [N], and the names of their examples if the file has them.

    A .npy or .npz of whole numbers, a table with a column of targets, or text with a class per line. `name` begins
    errors.
    """
    name = f"{name} {path.name}"
    with _one_line(path, name):
        if path.suffix.lower() not in PREDICTION_SUFFIXES:
            lines = [line.strip() for line in read_text(path, "utf-8-sig", follow=True).splitlines()]
            return target_indices([line for line in lines if line], tree, name, order), None
        parts = _read_parts(path, tree, only_targets=True)
        targets = parts.get("targets", parts.get("scores"))  # the only array may have any name
        if targets is None or targets.ndim != 1:
            raise UserError(f"{name} has no array of targets [N]")
        return target_indices(targets, tree, name, order), _texts(parts.get("ids"))


@contextmanager
def _one_line(path: Path, name: str) -> Iterator[None]:
    """Turn exceptions from reading a file into a UserError."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{name}: {' '.join(str(error).split())[:300]}") from None
    except (AttributeError, IndexError, KeyError, OverflowError, RecursionError, TypeError) as error:
        raise UserError(f"{name}: its content has no form that is read ({error_line(error)})") from None


def _read_parts(path: Path, tree: Hierarchy, *, only_targets: bool = False) -> Parts:
    """Return the content of a file; arrays have our names or those of Hugging Face's `predict`."""
    kind = path.suffix.lower()
    if kind in TABLE_SUFFIXES:
        from hierbench.studies.scoring.table_files import read_table  # with pandas, which arrays do without

        return read_table(path, tree, only_targets=only_targets)
    if kind == ".npy":
        return {"scores": map_array(path)}
    names: dict[str, str] = {}
    arrays = read_arrays(path, in_place=True)
    for name in arrays:
        role = "targets" if find_role(name) == "labels" else find_role(name)
        if role == "scores":
            refuse_smaller_better(name)
        if role in names:
            raise UserError(f"{path.name} has two arrays of {role}, {names[role]!r} and {name!r}")
        names[role] = name
    if not only_targets and not names.keys() & {"scores", "classes"}:
        raise UserError(f"{path.name} has no array of scores; it has {', '.join(arrays) or 'none'}")
    return {role: arrays[name] for role, name in names.items()}


def _texts(values: NDArray[Any] | None) -> list[str] | None:
    if values is None:
        return None
    return [value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value) for value in values.tolist()]


def _check_parts(parts: Parts, tree: Hierarchy, where: str, order: NumberOrder) -> Predictions:
    """Return predictions with class indices; a UserError unless their parts fit each other and the tree."""
    scores = parts.get("scores")
    classes = None
    columns = ""
    if scores is not None and "names" not in parts and _are_names(parts.get("classes"), tree):
        parts = {"names" if role == "classes" else role: values for role, values in parts.items()}
    if scores is not None and scores.ndim == 1 and scores.dtype.kind in "iuUS" and "classes" not in parts:
        parts = {**parts, "classes": scores}
        scores = None  # labels only
    if "classes" in parts:
        ranked = parts["classes"]
        classes = class_indices(ranked[:, None] if ranked.ndim == 1 else ranked, tree, f"{where}: classes", order)
    if scores is not None:
        expected = tree.num_classes if classes is None else classes.shape[1]
        if scores.ndim != 2 or scores.shape[1] != expected:
            shape = " x ".join(f"{size:,}" for size in scores.shape)
            expectation = f"a column for each of the {expected:,} " + (
                "classes" if classes is None else "ranked classes"
            )
            raise UserError(f"{where}: scores are {shape}, not N x {expected:,}, {expectation}")
        if scores.dtype.kind not in "fiu":
            raise UserError(f"{where}: scores are {scores.dtype}, not real numbers")
        if classes is None:
            scores, columns = _order_columns(scores, parts.get("names"), tree, where, order)
    predictions = Predictions(where, scores, classes, None, None)
    for role in ("targets", "ids"):
        if role in parts and parts[role].shape != (predictions.num_examples,):
            raise UserError(f"{where}: {role} must be [{predictions.num_examples}], got {list(parts[role].shape)}")
    if classes is not None:
        if classes.shape[1] > tree.num_classes or (np.diff(np.sort(classes, axis=1), axis=1) == 0).any():
            raise UserError(f"{where}: a row ranks a class twice")
        if scores is not None:
            if np.isnan(scores).any():
                raise UserError(f"{where}: a score is NaN, first in row {int(np.argwhere(np.isnan(scores))[0][0])}")
            # The largest score first, equal ones by class index.
            ranks = np.lexsort((classes, -scores.astype(np.float64)), axis=1)
            scores, classes = (np.take_along_axis(part, ranks, axis=1) for part in (scores, classes))
    targets = target_indices(parts["targets"], tree, f"{where}: targets", order) if "targets" in parts else None
    ids = _texts(parts.get("ids"))
    return replace(predictions, scores=scores, classes=classes, targets=targets, ids=ids, columns=columns)


def _are_names(values: NDArray[Any] | None, tree: Hierarchy) -> bool:
    """Whether values name all classes, each once, as columns do."""
    if values is None or values.shape != (tree.num_classes,) or values.dtype.kind not in "OUS":
        return False
    return set(_texts(values) or ()) == set(tree.classes)


def _order_columns(
    scores: NDArray[Any], names: NDArray[Any] | None, tree: Hierarchy, where: str, order: NumberOrder
) -> tuple[NDArray[Any], str]:
    """Return scores [N, K] with the columns in the tree's order, and their order before."""
    if names is not None:
        if names.shape != (tree.num_classes,):
            raise UserError(f"{where}: names must be [{tree.num_classes}], got {list(names.shape)}")
        labels = _texts(names) if names.dtype.kind in "OUS" else names.tolist()
        return in_order_of_tree(scores, labels or [], tree, where), "by name"
    columns = number_order(tree, order, f"{where}: columns of scores")
    if not np.array_equal(columns, np.arange(tree.num_classes)):
        return with_columns(scores, np.argsort(columns)), "in alphabetical order"
    first = tree.classes[0]
    last = tree.classes[-1]
    return scores, f"in the order of the tree: column 0 is {first!r}, column {tree.num_classes - 1} is {last!r}"
