"""Names in files of predictions: of columns and arrays by what they hold, of classes resolved against a tree."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from hierbench.hierarchy.tree import Hierarchy, IntArray
from hierbench.utils.errors import UserError, nearest

NAMES_OF = {
    "ids": ("filename", "file", "id", "ids", "image", "image_id", "path", "name", "unnamed: 0", "__index_level_0__"),
    "targets": ("target", "targets", "label_ids", "label_id", "y_true", "true_label", "ground_truth", "y"),
    "labels": ("label", "labels"),
    "classes": ("index", "indices", "classes", "class", "pred", "prediction", "topk"),
    "split": ("split",),
}
ROLES = {name: role for role, names in NAMES_OF.items() for name in names}
INTEGER = re.compile(r"[+-]?\d{1,18}(\.0*)?")


def role_of(name: str) -> str:
    """Return what an array of an .npz holds by its name: "ids", "targets", "classes", else "scores"."""
    role = ROLES.get(name.casefold(), "scores")
    return "targets" if role == "labels" else role


def class_indices(values: Any, tree: Hierarchy, what: str) -> IntArray:
    """Return class indices of numbers or names, in the shape given.

    Args:
        values: whole numbers from 0 to K - 1, or names of classes.
        tree: over the K classes.
        what: what they are, which begins the error.

    Raises:
        UserError: one is no class; a name in another case is suggested.
    """
    found = np.asarray(values)
    if found.dtype.kind in "OUS":
        return _of_texts(found, tree, what)
    if found.dtype.kind == "b" or (found.dtype.kind == "f" and not (np.isfinite(found) & (found % 1 == 0)).all()):
        odd = found.ravel()[0] if found.dtype.kind == "b" else found[~(np.isfinite(found) & (found % 1 == 0))][0]
        raise UserError(f"{what}: {odd} is no class index")
    indices = found.astype(np.int64)
    outside = (found < 0) | (found >= tree.num_classes)
    if outside.any():
        row = int(np.argwhere(outside)[0][0])
        raise UserError(
            f"{what}: {int(indices[outside][0])} in row {row} is out of range, {int(outside.sum()):,} are; classes are "
            f"0 to {tree.num_classes - 1}"
        )
    return indices


def _of_texts(found: np.ndarray[Any, Any], tree: Hierarchy, what: str) -> IntArray:
    texts = [text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text) for text in found.ravel()]
    index = {name: position for position, name in enumerate(tree.classes)}
    if all(text in index for text in set(texts)):
        return np.array([index[text] for text in texts], dtype=np.int64).reshape(found.shape)
    if all(INTEGER.fullmatch(text.strip()) for text in set(texts)):
        return class_indices(np.array([int(float(text)) for text in texts]).reshape(found.shape), tree, what)
    row, odd = next((row, text) for row, text in enumerate(texts) if text not in index)
    raise UserError(f"{what}: {odd[:80]!r} in row {row * len(found) // len(texts)} is no class{suggestion(odd, tree)}")


def suggestion(name: str, tree: Hierarchy) -> str:
    """Return "; did you mean ...?" for a name that is no class, "" where none is near."""
    meant = nearest(name, tree.classes)
    return f" of the tree; did you mean {meant!r}?" if meant else " of the tree"


def in_order_of_classes(columns: Sequence[str], tree: Hierarchy, where: str) -> list[str] | None:
    """Return the columns that are named as the classes, in target order; None where columns are not named so.

    Raises:
        UserError: a class has no column; one that differs in case, and thus is meant, is suggested.
    """
    there = set(columns)
    folded = {name.casefold() for name in tree.classes}
    named = [name for name in columns if name.casefold() in folded]
    if len(named) < 2 or 2 * len(named) < tree.num_classes:
        return None
    missing = [name for name in tree.classes if name not in there]
    if missing:
        meant = next((name for name in named if name.casefold() == missing[0].casefold()), "")
        hint = f"; column {meant!r} differs in case: rename it to {missing[0]!r}" if meant else ""
        raise UserError(
            f"{where}: no column for {len(missing):,} of {tree.num_classes:,} classes: {missing[0]!r}{hint}"
        )
    return list(tree.classes)
