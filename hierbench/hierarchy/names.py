"""Classes by name or index, resolved against a tree."""

import re
from typing import Any

import numpy as np

from hierbench.hierarchy.tree import Hierarchy, IntArray
from hierbench.utils.errors import UserError, nearest

INTEGER = re.compile(r"[+-]?\d{1,18}(\.0*)?")


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
    if found.dtype.kind not in "iuf":
        example = f"{found.ravel()[0]} is no class index: " if found.size else ""
        raise UserError(f"{what}: {example}neither whole numbers nor names but {found.dtype}")
    if found.dtype.kind == "f":
        whole = np.isfinite(found) & (np.trunc(found) == found)
        if not whole.all():
            raise UserError(f"{what}: {found[~whole][0]} is no class index")
    outside = (found < 0) | (found >= tree.num_classes)
    if outside.any():
        row = int(np.argwhere(outside)[0][0])
        raise UserError(
            f"{what}: {found[outside][0].item()} in row {row} is out of range, {int(outside.sum()):,} are; classes are "
            f"0 to {tree.num_classes - 1}"
        )
    return found.astype(np.int64)


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
