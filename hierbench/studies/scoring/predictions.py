"""Reading predictions from files that hold arrays, and taking those that are in memory.

Shapes: N examples, K classes, k ranked classes.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hierbench.hierarchy.class_names import NumberOrder, target_indices
from hierbench.hierarchy.label_tree import Hierarchy, IntArray
from hierbench.studies.scoring.column_roles import find_role
from hierbench.studies.scoring.prediction_parts import (
    ORDER_OF_TREE,
    Parts,
    Predictions,
    ReadingOptions,
    check_parts,
    texts_of,
)
from hierbench.utils.arrays import map_array, read_arrays
from hierbench.utils.errors import Argument, InputError, UserError, error_line, unknown_name
from hierbench.utils.files import read_text

TABLE_SUFFIXES = (".csv", ".parquet", ".json")
PREDICTION_SUFFIXES = (".npz", ".npy", *TABLE_SUFFIXES)
PICKLES = (".pkl", ".pickle", ".pt", ".pth", ".bin", ".joblib")


@dataclass(frozen=True)
class Arrays:
    """Predictions that are in memory: scores [N, K] and targets [N], class indices or names, or None.

    `columns` are K names or indices of classes, `ids` N names of the examples, `groups` N names of what they are of.
    """

    where: str
    scores: NDArray[Any]
    targets: NDArray[Any] | None
    columns: Sequence[Any] | None = None
    ids: Sequence[str] | None = None
    groups: NDArray[Any] | None = None

    def predictions(self, tree: Hierarchy, options: ReadingOptions) -> Predictions:
        """Return them as a file's; a UserError if they do not fit each other or the tree."""
        if self.scores.ndim != 2 or not len(self.scores):
            shape = " x ".join(map(str, self.scores.shape))
            raise UserError(
                f"{self.where} must be [N, {tree.num_classes}], a row per example, got {shape or 'a number'}"
            )
        parts = {"scores": self.scores, "targets": self.targets, "names": self.columns, "ids": self.ids}
        parts |= {"groups": self.groups}
        array_by_role = {role: np.asarray(values) for role, values in parts.items() if values is not None}
        return check_parts(array_by_role, tree, self.where, options)


def read_predictions(path: Path, tree: Hierarchy, options: ReadingOptions = ORDER_OF_TREE) -> Predictions:
    """Read a file of predictions over the classes of a tree.

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
        predictions = check_parts(_read_parts(path, tree, options), tree, path.name, options)
    if not predictions.num_examples:
        raise UserError(f"{path.name} has no predictions")
    return predictions


def read_targets(
    path: Path, tree: Hierarchy, name: str = "targets", order: NumberOrder | None = None
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
        return target_indices(targets, tree, name, order), texts_of(parts.get("ids"))


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


def _read_parts(
    path: Path, tree: Hierarchy, options: ReadingOptions = ORDER_OF_TREE, *, only_targets: bool = False
) -> Parts:
    """Return the content of a file; arrays have our names or those of Hugging Face's `predict`."""
    kind = path.suffix.lower()
    ignored = options.ignore
    if kind in TABLE_SUFFIXES:
        from hierbench.studies.scoring.table_files import read_table  # with pandas, which arrays do without

        return read_table(path, tree, only_targets=only_targets, ignored=ignored, group=options.group)
    if kind == ".npy" and options.group:
        raise UserError(f"{path.name} is one array, without {options.group!r}: groups are an array of a .npz")
    if kind == ".npy":
        return {"scores": map_array(path)}
    arrays = read_arrays(path, in_place=True)
    unknown_names = [name for name in ignored if name not in arrays]
    if unknown_names:
        raise unknown_name(f"array of {path.name}", unknown_names[0], arrays)
    if options.group and options.group not in arrays:
        raise unknown_name(f"array of {path.name}", options.group, arrays)
    name_by_role = {"groups": options.group} if options.group else dict[str, str]()
    for name in arrays.keys() - {*ignored, options.group} if not only_targets or len(arrays) > 1 else ():
        role = find_role(name)
        role = "targets" if role == "labels" else role
        if role is None and not only_targets:
            choice = Argument("ignore", name[:80])
            raise InputError(f"{path.name}: array {name[:80]!r} is not understood; to leave it out, {choice}", choice)
        if role in name_by_role:
            raise UserError(f"{path.name} has two arrays of {role}, {name_by_role[role]!r} and {name!r}")
        if role is not None:
            name_by_role[role] = name
    if only_targets and len(arrays) == 1:
        return {"targets": next(iter(arrays.values()))}
    if not only_targets and not name_by_role.keys() & {"scores", "classes"}:
        raise UserError(f"{path.name} has no array of scores; it has {', '.join(arrays) or 'none'}")
    return {role: arrays[name] for role, name in name_by_role.items()}
