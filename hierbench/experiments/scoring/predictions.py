"""Predictions as a file has them, and reading the formats that hold arrays.

Shapes: N examples, K classes, k ranked classes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hierbench.experiments.scoring.names import role_of
from hierbench.hierarchy.names import class_indices, in_order_of_tree
from hierbench.hierarchy.tree import Hierarchy, IntArray
from hierbench.utils.arrays import map_array, read_arrays
from hierbench.utils.errors import UserError
from hierbench.utils.files import read_text

if TYPE_CHECKING:
    from hierbench.experiments.scoring.tables import Table

TABLES = (".csv", ".parquet", ".json")
FORMATS = (".npz", ".npy", *TABLES)
PICKLES = (".pkl", ".pickle", ".pt", ".pth", ".bin", ".joblib")


@dataclass(frozen=True)
class Predictions:
    """What one file says.

    Attributes:
        where: the file's name, which begins errors.
        scores: [N, K], larger = ranked earlier; or [N, k] of the ranked classes, None where the file has none.
        classes: [N, k] ranked class indices, best first; None where every class has a score.
        targets: [N] class indices, or None.
        ids: names of the N examples, or None.
    """

    where: str
    scores: NDArray[Any] | None
    classes: IntArray | None
    targets: IntArray | None
    ids: list[str] | None

    @property
    def num_examples(self) -> int:
        """N."""
        ranked = self.classes if self.scores is None else self.scores
        assert ranked is not None
        return len(ranked)


@dataclass(frozen=True)
class Arrays:
    """Predictions that are in memory: scores [N, K] and targets [N], class indices or names, or None.

    `columns` are K names or indices of classes, or None for the tree's order.
    """

    where: str
    scores: NDArray[Any]
    targets: NDArray[Any] | None
    columns: Sequence[Any] | None = None

    def predictions(self, tree: Hierarchy) -> Predictions:
        """Return them as a file's; a UserError if they do not fit each other or the tree."""
        if self.scores.ndim != 2 or not len(self.scores):
            shape = " x ".join(map(str, self.scores.shape))
            raise UserError(
                f"{self.where} must be [N, {tree.num_classes}], a row per example, got {shape or 'a number'}"
            )
        names, scores = self.columns, self.scores
        scores = scores if names is None else in_order_of_tree(scores, names, tree, self.where)
        given = {"scores": scores} | ({} if self.targets is None else {"targets": self.targets})
        return _of_arrays(given, tree, self.where)


def read_predictions(path: Path, tree: Hierarchy) -> Predictions:
    """Read a file of predictions over the classes of a tree.

    Raises:
        UserError: it cannot be read, is damaged, or does not fit the tree.
    """
    kind = path.suffix.lower()
    if kind in PICKLES:
        raise UserError(f"{path.name}: pickles can run any code and are never read; save arrays with numpy.savez")
    if kind not in FORMATS:
        raise UserError(f"{path.name}: predictions are {', '.join(FORMATS)} files, not {kind or 'without an ending'!r}")
    try:
        if kind in TABLES:
            from hierbench.experiments.scoring.tables import read_table  # with pandas, which arrays do without

            found = _of_table(read_table(path, tree), tree, path.name)
        else:
            arrays: Mapping[str, NDArray[Any]] = read_arrays(path) if kind == ".npz" else {"scores": map_array(path)}
            found = _of_arrays(arrays, tree, path.name)
    except UserError:
        raise
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        raise UserError(f"{path.name}: {' '.join(str(error).split())[:300]}") from None
    if not found.num_examples:
        raise UserError(f"{path.name} has no predictions")
    return found


def read_targets(path: Path, tree: Hierarchy, what: str = "--targets") -> tuple[IntArray, list[str] | None]:
    """Read targets [N], and the names of their examples if the file has them.

    A .npy or .npz of whole numbers, a table with a column of targets, or text with a class per line. `what` begins
    errors.
    """
    kind = path.suffix.lower()
    what = f"{what} {path.name}"
    try:
        if kind in (".npy", ".npz"):
            arrays = read_arrays(path) if kind == ".npz" else {"targets": map_array(path)}
            roles = {role_of(name): name for name in arrays}
            name = roles.get("targets") or next(iter(arrays), "")
            if not name or arrays[name].ndim != 1:
                raise UserError(f"{what} has no array of targets [N]")
            ids = roles.get("ids")
            return class_indices(arrays[name], tree, what), _texts(arrays[ids]) if ids else None
        if kind in TABLES:
            from hierbench.experiments.scoring.tables import read_table

            table = read_table(path, tree, only_targets=True)
            return class_indices(table.targets, tree, what), table.ids
        lines = [line.strip() for line in read_text(path, "utf-8-sig", follow=True).splitlines()]
        return class_indices([line for line in lines if line], tree, what), None
    except UserError:
        raise
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        raise UserError(f"{what}: {' '.join(str(error).split())[:300]}") from None


def _texts(values: NDArray[Any]) -> list[str]:
    return [value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value) for value in values.tolist()]


def _of_arrays(arrays: Mapping[str, NDArray[Any]], tree: Hierarchy, where: str) -> Predictions:
    """Return the arrays of an .npz by their names, which are ours or those that Hugging Face's `predict` gives."""
    roles: dict[str, str] = {}
    for name in arrays:
        if (role := role_of(name)) in roles:
            raise UserError(f"{where} has two arrays of {role}, {roles[role]!r} and {name!r}")
        roles[role] = name
    found = {role: arrays[name] for role, name in roles.items()}
    if "scores" not in found and "classes" not in found:
        raise UserError(f"{where} has no array of scores; it has {', '.join(arrays) or 'none'}")
    scores, targets, ids = found.get("scores"), found.get("targets"), found.get("ids")
    classes = None
    if "classes" in found:
        ranked = found["classes"][:, None] if found["classes"].ndim == 1 else found["classes"]
        classes = class_indices(ranked, tree, f"{where}: classes")
    num = len(scores if scores is not None else found["classes"])
    for role, values in (("targets", targets), ("ids", ids)):
        if values is not None and values.shape != (num,):
            raise UserError(f"{where}: {role} must be [{num}], got {list(values.shape)}")
    return checked(Predictions(where, scores, classes, targets, None if ids is None else _texts(ids)), tree)


def _of_table(table: "Table", tree: Hierarchy, where: str) -> Predictions:
    classes = None if table.classes is None else class_indices(table.classes, tree, f"{where}: ranked classes")
    return checked(Predictions(where, table.scores, classes, table.targets, table.ids), tree)


def checked(found: Predictions, tree: Hierarchy) -> Predictions:
    """Return predictions whose scores and classes fit each other and the tree, their targets as class indices.

    Raises:
        UserError: a wrong number of columns, scores that are no real numbers, a class ranked twice, or a target that is
            no class.
    """
    scores, classes, num_classes = found.scores, found.classes, tree.num_classes
    if scores is not None:
        expected = num_classes if classes is None else classes.shape[1]
        if scores.ndim != 2 or scores.shape[1] != expected:
            shape = " x ".join(f"{size:,}" for size in scores.shape)
            wanted = f"a column for each of the {expected:,} " + ("classes" if classes is None else "ranked classes")
            raise UserError(f"{found.where}: scores are {shape}, not N x {expected:,}, {wanted}")
        if scores.dtype.kind not in "fiu":
            raise UserError(f"{found.where}: scores are {scores.dtype}, not real numbers")
    if classes is not None:
        if classes.shape[1] > num_classes or (np.diff(np.sort(classes, axis=1), axis=1) == 0).any():
            raise UserError(f"{found.where}: a row ranks a class twice")
        if scores is not None:
            scores, classes = _by_score(scores, classes, found.where)
    targets = None if found.targets is None else class_indices(found.targets, tree, f"{found.where}: targets")
    return Predictions(found.where, scores, classes, targets, found.ids)


def _by_score(scores: NDArray[Any], classes: IntArray, where: str) -> tuple[NDArray[Any], IntArray]:
    """Return [N, k] scores and classes, the largest score first and equal ones by class index."""
    if np.isnan(scores).any():
        raise UserError(f"{where}: a score is NaN, first in row {int(np.argwhere(np.isnan(scores))[0][0])}")
    order = np.lexsort((classes, -scores.astype(np.float64)), axis=1)
    return np.take_along_axis(scores, order, axis=1), np.take_along_axis(classes, order, axis=1)
