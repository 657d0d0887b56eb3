"""Features of the user's own in place of images: an .npz, or a folder of .npy, opened as a source.

Arrays: `train`, `val`, `test` [N, D], or [V, N, D] of V views of each training example; `train_labels`, `val_labels`,
`test_labels` [N], indices or names of classes; optionally `classes` [K], their names in the order of the indices, and
`scale` [D], for integers: value = number x scale.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
from numpy.typing import NDArray

from hierbench.data.source import Labels, Piece, Source, Vectors
from hierbench.data.user.photographs import GoneError
from hierbench.data.writer import SPLITS
from hierbench.hierarchy.class_names import NumberOrder, class_indices, target_indices
from hierbench.hierarchy.label_tree import Hierarchy
from hierbench.utils.arrays import NUMBERS, TEXT, map_array, read_arrays, release
from hierbench.utils.errors import UserError

ARRAY_NAMES = (*SPLITS, *(f"{split}_labels" for split in SPLITS), "classes?", "scale?")
STORED = ("int8", "uint8", "int16", "float16", "float32")  # kept as they are; others become float32
BYTES_PER_READ = 1 << 22  # bytes of a block of rows that is read at a time
Arrays = Mapping[str, NDArray[Any]]


def read_vectors(place: Path) -> Arrays:
    """Return the arrays of an .npz, read whole, or of a folder of .npy, memory-mapped.

    Raises:
        GoneError: there is no such file or folder.
        UserError: an array is missing or holds no numbers.
    """
    if not place.exists():
        raise GoneError(f"no features {place}")
    files = {name.removesuffix("?"): place / f"{name.removesuffix('?')}.npy" for name in ARRAY_NAMES}
    try:
        if place.is_dir():
            arrays: Arrays = {n: map_array(file, NUMBERS + TEXT) for n, file in files.items() if file.exists()}
        else:
            arrays = read_arrays(place)
    except OSError as error:
        raise UserError(f"{error.filename or place} cannot be read ({error.strerror or error})") from None
    except ValueError as error:
        raise UserError(f"{place}: {error}") from None
    for name in ARRAY_NAMES:
        if name not in arrays and not name.endswith("?"):
            raise UserError(f"{place} has no array {name!r}; it has {', '.join(map(repr, arrays)) or 'none'}")
    return arrays


def has_class_names(place: Path) -> bool:
    """Whether existing features have an array `classes`, which their labels index."""
    return (place / "classes.npy").exists() if place.is_dir() else "classes.npy" in ZipFile(place).namelist()


def class_names(arrays: Arrays, tree: list[str], place: Path) -> list[str]:
    """Return the classes in the order of the labels: the array `classes`, else the tree's leaves in its order."""
    if "classes" not in arrays:
        return tree
    names = [name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name) for name in arrays["classes"]]
    if arrays["classes"].ndim != 1 or len(set(names)) < len(names):
        raise UserError(f"{place}: classes must be [K] different names")
    return names


def vectors_source(
    arrays: Arrays,
    place: Path,
    paths: dict[str, tuple[str, ...]],
    order: NumberOrder = "tree",
    *,
    labels_above: bool = False,
    **more: Any,
) -> Source:
    """Return features as a source to prepare; `paths` are {class: path}, and numbers mean classes in this order.

    With `labels_above`, a name among the training labels may be that of a node above the classes.

    Raises:
        UserError: sizes do not fit each other or the tree; `Piece.load` raises it for a value that is not finite.
    """
    views, vectors = _sizes(arrays, place)
    tree = Hierarchy.from_paths(paths)
    labels = dict[str, Labels]()
    for split in SPLITS:
        split_labels = arrays[f"{split}_labels"]
        num = views[split].shape[1]
        if split_labels.shape != (num,):
            raise UserError(f"{place}: {split}_labels is {_shape(split_labels)}, but {split} has {num:,} rows")
        if labels_above and split == "train":
            targets = target_indices(split_labels, tree, f"{place}: {split}_labels", order)
            labels[split] = np.where(targets < 0, tree.num_classes - 1 - targets, targets)
        else:
            labels[split] = class_indices(split_labels, tree, f"{place}: {split}_labels", order)
    absent = {split: np.setdiff1d(np.arange(tree.num_classes), labels[split]) for split in SPLITS}
    if len(absent["train"]):
        raise UserError(
            f"{place}: {len(absent['train']):,} of {tree.num_classes:,} classes have no row in train, "
            f"first {tree.classes[absent['train'][0]]!r}"
        )
    remarks = [
        f"{len(absent[split]):,} of {tree.num_classes:,} classes have no row in {split}"
        for split in ("val", "test")
        if len(absent[split])
    ]

    def pieces() -> Iterator[Piece]:
        rows = max(1, BYTES_PER_READ // (4 * vectors.num_channels))
        dtype = np.dtype(vectors.dtype)
        for split, array in views.items():
            for view in range(len(array)):
                for start in range(0, array.shape[1], rows):
                    load = partial(_block, array, view, start, start + rows, dtype, f"{place}: {split}")
                    yield Piece(split, view * array.shape[1] + start, load)

    return Source(paths, labels, None, pieces, remarks=remarks, vectors=vectors, **more)


def _sizes(arrays: Arrays, place: Path) -> tuple[dict[str, NDArray[Any]], Vectors]:
    """Return each split as [V, N, D], and their common type, classes and scale."""
    views = dict[str, NDArray[Any]]()
    for split in SPLITS:
        array = arrays[split]
        if array.dtype.kind not in "iuf":
            raise UserError(f"{place}: {split} holds {array.dtype}, not real numbers")
        if array.ndim not in (2, 3) or 0 in array.shape:
            raise UserError(f"{place}: {split} is {_shape(array)}, not [N, D]" + ", or [V, N, D]" * (split == "train"))
        views[split] = array if array.ndim == 3 else array[None]
        if split != "train" and len(views[split]) > 1:
            raise UserError(f"{place}: {split} has {array.shape[0]:,} views; evaluation takes one, [N, D]")
        if views[split].shape[2] != views["train"].shape[2]:
            raise UserError(
                f"{place}: {split} has {array.shape[-1]:,} numbers a row, train has {views['train'].shape[2]:,}"
            )
        if array.dtype != arrays["train"].dtype:
            raise UserError(f"{place}: {split} holds {array.dtype}, train {arrays['train'].dtype}")
    channels = views["train"].shape[2]
    name = arrays["train"].dtype.name
    scale = arrays.get("scale")
    if scale is not None:
        if name.startswith("float"):
            raise UserError(f"{place}: scale is for integers, and train holds {name}")
        if scale.shape != (channels,) or scale.dtype.kind != "f" or not (np.isfinite(scale) & (scale > 0)).all():
            raise UserError(f"{place}: scale is not [{channels}] positive numbers")
    kept = name if name in STORED else "float32"
    return views, Vectors(channels, len(views["train"]), kept, None if scale is None else tuple(map(float, scale)))


def _block(array: NDArray[Any], view: int, start: int, end: int, dtype: np.dtype[Any], where: str) -> NDArray[Any]:
    with np.errstate(over="ignore"):
        block = np.array(array[view, start:end], dtype, order="C")
    release(array)
    if dtype.kind == "f" and not (finite := np.isfinite(block).all(axis=1)).all():
        row = start + int(np.argmin(finite))
        raise UserError(f"{where}: row {row:,} has a value that is not finite")
    return block


def _shape(array: NDArray[Any]) -> str:
    return f"[{', '.join(f'{size:,}' for size in array.shape)}]"
