"""Classes by name or index, resolved against a tree."""

import re
from collections.abc import Sequence
from numbers import Integral
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from hierbench.hierarchy.label_tree import Hierarchy, IntArray
from hierbench.utils.arrays import with_columns
from hierbench.utils.errors import Argument, InputError, UserError, nearest

ClassOrder = Literal["tree", "alphabetical"]
NumberOrder = Literal["tree", "alphabetical", "unknown"]
CONVERSIONS = {  # objects that are not read, and what to give in their place
    "polars": "SCORES.to_pandas()",
    "pyarrow": "SCORES.to_pandas()",
    "xarray": "SCORES.to_pandas()",
    "scipy": "SCORES.toarray()",
}
TREE_ORDER = Argument("order", "tree")
ALPHABETICAL_ORDER = Argument("order", "alphabetical")
INTEGER = re.compile(r"[+-]?\d{1,18}(\.0*)?")


def class_indices(values: Any, tree: Hierarchy, name: str, order: NumberOrder | None = None) -> IntArray:
    """Return class indices of numbers or names, in the shape given.

    Args:
        values: whole numbers, in an array of any type, or names of classes.
        tree: over the K classes.
        name: of the values, which begins the error.
        order: in which the classes are numbered from 0 to K - 1. By default the tree's; but where its classes are whole
            numbers, a number is the class of that name.

    Raises:
        UserError: one is no class; a name in another case is suggested.
    """
    refuse_labels(values, name)
    if np.ma.is_masked(values):
        raise UserError(f"{name}: a value is masked, which is no class")
    array = np.asarray(values)
    numbers = array.dtype.kind == "O" and all(map(_is_whole, array.flat))  # as a column of pandas may hold them
    if array.dtype.kind in "OUS" and not numbers:
        return _of_texts(array, tree, name, order)
    if array.dtype.kind not in "iuf" and not numbers:
        example = f"{array.ravel()[0]} is not a class index: " if array.size else ""
        raise UserError(f"{name}: {example}neither whole numbers nor names but {array.dtype}")
    if array.dtype.kind == "f":
        is_integer = np.isfinite(array) & (np.trunc(array) == array)
        if not is_integer.all():
            raise UserError(f"{name}: {array[~is_integer][0]} is not a class index")
    if tree.has_numbers and order not in ("tree", "alphabetical"):
        return _of_numbers(array.astype(np.int64), tree, name)
    outside = (array < 0) | (array >= tree.num_classes)
    if outside.any():
        row = int(np.argwhere(outside)[0][0])
        raise UserError(
            f"{name}: {array[outside][0]} in row {row} is out of range, {int(outside.sum()):,} are; classes are "
            f"0 to {tree.num_classes - 1}"
        )
    return number_order(tree, order, name)[array.astype(np.int64)]


def target_indices(values: Any, tree: Hierarchy, name: str, order: NumberOrder | None = None) -> IntArray:
    """Return targets [N]: class indices, and -1 - n for a text that names the inner node n of `Nodes`.

    Raises:
        UserError: as `class_indices`; or a name stands for two nodes.
    """
    array = np.asarray(values)
    if array.dtype.kind not in "OUS":
        return class_indices(array, tree, name, order)
    texts = [text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text) for text in array.ravel()]
    classes = set(tree.classes)
    numbers = {node: found for node, found in inner_numbers(tree).items() if node not in classes}
    rows = [row for row, text in enumerate(texts) if text in numbers]
    if not rows:
        return class_indices(array, tree, name, order)
    for row in rows:
        if len(numbers[texts[row]]) > 1:
            raise UserError(f"{name}: {texts[row][:80]!r} in row {row} stands for several nodes of the tree")
    named = [tree.classes[0] if text in numbers else text for text in texts]  # a class in their place
    targets = class_indices(np.array(named, dtype=object), tree, name, order)
    targets[rows] = [-1 - numbers[texts[row]][0] for row in rows]
    return targets


def inner_numbers(tree: Hierarchy) -> dict[str, list[int]]:
    """Return {name: numbers of the inner nodes of this name}, as `Nodes` numbers them."""
    numbers = dict[str, list[int]]()
    count = 1  # the root is 0
    for names, distances in zip(tree.level_names, tree.node_distances, strict=True):
        for place in np.flatnonzero(distances > 0).tolist():  # a leaf above the last level has the distance 0
            numbers.setdefault(names[place], []).append(count)
            count += 1
    return numbers


def number_order(tree: Hierarchy, order: NumberOrder | None, name: str) -> IntArray:
    """Return [K] the class that each number from 0 stands for, and each column of scores without a name.

    ImageFolder, timm and Hugging Face number classes in alphabetical order, which may not be the tree's.

    Raises:
        UserError: the order is not known, and the two differ.
    """
    alphabetical = np.array(sorted(range(tree.num_classes), key=tree.classes.__getitem__), dtype=np.int64)
    in_tree = np.arange(tree.num_classes)
    if order == "alphabetical":
        return alphabetical
    if order != "unknown" or tree.has_numbers or np.array_equal(alphabetical, in_tree):
        return in_tree
    firsts = [", ".join(repr(tree.classes[i]) for i in some[:3]) for some in (in_tree, alphabetical)]
    raise InputError(
        f"{name}: nothing names the classes, which may be in the order of the tree, {firsts[0]}, ..., or in "
        f"alphabetical order, {firsts[1]}, ...: give {TREE_ORDER}, {ALPHABETICAL_ORDER}, or names",
        TREE_ORDER,
        ALPHABETICAL_ORDER,
    )


def scores_by_class(values: Any, tree: Hierarchy | None, name: str) -> Any:
    """Return scores [N, K] in the order of the tree's classes, as an array; what has no labels, as it is.

    The columns of a data frame are aligned by name; numbers are names where the classes of the tree are numbers, else
    places in its order. What an array masks is -inf.

    Args:
        values: an array, a tensor, a list of lists, or a data frame.
        tree: over the K classes; None where no tree is known, so that columns must have no names.
        name: of the scores, which begins errors.

    Raises:
        UserError: labels that stand for no classes, or an object whose labels are not read.
    """
    refuse_labels(values, name)
    if isinstance(values, np.ma.MaskedArray):
        dtype = np.result_type(values.dtype, np.float32)
        return np.where(np.ma.getmaskarray(values), -np.inf, np.ma.getdata(values)).astype(dtype)
    if not (hasattr(values, "columns") and hasattr(values, "to_numpy")):
        return values
    labels = column_labels(values, tree, name)
    scores = np.asarray(values)
    if labels is None:
        return scores
    if tree is None:
        raise UserError(f"{name}: columns have names, and no tree says their order: give an array in the tree's order")
    return in_order_of_tree(scores, labels, tree, name)


def column_labels(values: Any, tree: Hierarchy | None, name: str) -> list[Any] | None:
    """Return the labels of a data frame's columns, names or whole numbers; None for the numbers that pandas gives."""
    if not (hasattr(values, "columns") and hasattr(values, "to_numpy")):
        return None
    labels = [label.decode("utf-8", "replace") if isinstance(label, bytes) else label for label in values.columns]
    if all(isinstance(label, str) for label in labels):
        return labels
    if not all(_is_whole(label) or (isinstance(label, float) and label.is_integer()) for label in labels):
        raise UserError(f"{name}: columns are labelled {labels[0]!r}, ..., which name no classes")
    numbers = [int(label) for label in labels]
    if type(values.columns).__name__ == "RangeIndex" and numbers == list(range(len(numbers))):
        return None
    if tree is not None and not tree.has_numbers and sorted(numbers) != list(range(len(numbers))):
        raise UserError(f"{name}: columns are labelled {numbers[0]}, ..., which are no classes of the tree")
    return numbers


def refuse_labels(values: Any, name: str) -> None:
    """Raise a UserError for an object whose labels, or layout, are not read; it says how to convert it."""
    module = type(values).__module__.partition(".")[0]
    way = CONVERSIONS.get(module) if module != "scipy" or hasattr(values, "toarray") else None
    if way:
        raise UserError(f"{name}: {type(values).__name__} of {module} is not read: give {way}")


def rows_in_order(scores: Any, targets: Any, name: str) -> Any:
    """Return targets in the order of the scores where both are of pandas and their indices hold the same labels.

    Raises:
        UserError: the labels are not the same, or one is there twice; or only one of both has an index, and it numbers
            the rows from 0 in another order than theirs.
    """
    indices = [getattr(values, "index", None) for values in (scores, targets)]
    rows, order = (None if callable(index) else index for index in indices)
    if rows is None or order is None:
        index = rows if order is None else order
        if index is not None and not index.is_monotonic_increasing and set(index) == set(range(len(index))):
            where = "scores" if order is None else "targets"
            raise UserError(
                f"{name}: rows of the {where} are numbered {index[0]}, {index[1]}, ...: put them in order, as "
                "by .sort_index(), or give scores and targets with one index"
            )
        return targets
    if rows.equals(order):
        return targets
    if len(rows) == len(order) and all(type(index).__name__ == "RangeIndex" for index in indices):
        return targets
    if not rows.is_unique or not order.is_unique or set(rows) != set(order):
        raise UserError(f"{name}: the rows of scores and targets are labelled otherwise: give both with one index")
    return targets.loc[rows]


def in_order_of_tree(scores: NDArray[Any], labels: Sequence[Any], tree: Hierarchy, name: str) -> NDArray[Any]:
    """Return scores [N, K] with the columns in the tree's order.

    Args:
        scores: [N, K], a column for each label.
        labels: K names or indices of the classes.
        tree: over the K classes.
        name: of the scores, which begins the error.

    Raises:
        UserError: a label is no class, or a class has no column or two.
    """
    classes = set(tree.classes)
    for label in labels:
        if isinstance(label, str) and label not in classes and not INTEGER.fullmatch(label):
            raise UserError(f"{name}: column {label[:80]!r} is not a class{suggestion(label, tree)}")
    columns = class_indices(labels, tree, f"{name}: columns")
    count = np.bincount(columns, minlength=tree.num_classes)
    if (count != 1).any():
        odd = int(np.flatnonzero(count != 1)[0])
        raise UserError(f"{name}: class {tree.classes[odd]!r} has {'two columns' if count[odd] else 'no column'}")
    return with_columns(scores, np.argsort(columns))


def _is_whole(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _of_numbers(values: IntArray, tree: Hierarchy, name: str) -> IntArray:
    """Return the classes named by these numbers."""
    index = {int(class_name): position for position, class_name in enumerate(tree.classes)}
    unknown = [number for number in np.unique(values).tolist() if number not in index]
    if unknown:
        row = int(np.argwhere(values == unknown[0])[0][0])
        level = tree.level_of(str(unknown[0]))
        if level is not None:
            raise _inner_node(str(unknown[0]), level, row, name)
        raise InputError(
            f"{name}: {unknown[0]} in row {row} is not a class of the tree, whose classes are the numbers "
            f"{tree.classes[0]} to {tree.classes[-1]}; if these are places in that order, give {TREE_ORDER}",
            TREE_ORDER,
        )
    return np.array([index[number] for number in values.ravel().tolist()], dtype=np.int64).reshape(values.shape)


def _of_texts(values: np.ndarray[Any, Any], tree: Hierarchy, name: str, order: NumberOrder | None) -> IntArray:
    texts = [text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text) for text in values.ravel()]
    index = {name: position for position, name in enumerate(tree.classes)}
    if all(text in index for text in set(texts)):
        return np.array([index[text] for text in texts], dtype=np.int64).reshape(values.shape)
    if all(INTEGER.fullmatch(text.strip()) for text in set(texts)):
        numbers = np.array([int(float(text)) for text in texts]).reshape(values.shape)
        return class_indices(numbers, tree, name, order)
    row, odd = next((row, text) for row, text in enumerate(texts) if text not in index)
    row = row * len(values) // len(texts)
    level = tree.level_of(odd)
    if level is not None:
        raise _inner_node(odd, level, row, name)
    raise UserError(f"{name}: {odd[:80]!r} in row {row} is not a class{suggestion(odd, tree)}")


def _inner_node(node: str, level: int, row: int, name: str) -> UserError:
    return UserError(f"{name}: {node[:80]!r} in row {row} is the node of level {level}, not a class")


def suggestion(name: str, tree: Hierarchy) -> str:
    """Return "; did you mean ...?" for an unknown class name, "" without a similar one."""
    meant = nearest(name, tree.classes)
    return f" of the tree; did you mean {meant!r}?" if meant else " of the tree"
