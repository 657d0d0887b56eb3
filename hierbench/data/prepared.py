"""Prepared datasets: every image decoded, resized and stored once, with labels, tree and digest.

A prepared dataset is a folder `<data-dir>/prepared/<name>/` with, per split, `<split>-images.npy` ([N, 3, H, W] uint8),
or `<split>-features.npy` ([V, N, D]) where it has features in place of images, and `<split>-labels.npy` ([N] int64),
and `meta.json`, which is written last: without it nothing is prepared.
"""

import json
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hierbench.config.options import folder_options
from hierbench.config.recipe import image_dataset, recipe_names
from hierbench.config.sections import Data
from hierbench.config.spec import DatasetSpec
from hierbench.data.source import Labels
from hierbench.data.writer import ABOVE, SPLITS
from hierbench.hierarchy.label_tree import Distance, Hierarchy
from hierbench.utils.arrays import load_array, map_array, release
from hierbench.utils.errors import UserError
from hierbench.utils.files import (
    parse_json_object,
    read_bytes,
    read_json_object,
    read_text,
    refuse_links,
    write_json,
)

CHECKED = "checked.json"  # next to the arrays: their state when the digest was verified
IMAGES_PER_READ = 256  # images read at a time
RELEASED_ROWS = 64 * IMAGES_PER_READ  # rows after which the memory of rows that were read is given back
LARGEST_IDS = 1 << 30  # bytes
Progress = Callable[[float], None]  # the share that is done
verified_states: list[dict[str, Any]] = []  # states that this process has verified


@dataclass(frozen=True)
class Prepared:
    """A prepared dataset on disk."""

    folder: Path
    meta: dict[str, Any]

    @property
    def digest(self) -> str:
        """SHA-256 over all images, labels and class names."""
        return str(self.meta["digest"])

    @property
    def ordered(self) -> bool:
        """Whether the rows are in the dataset's official order."""
        return self.meta.get("ordered", True) is not False

    @property
    def has_labels_above(self) -> bool:
        """Whether training labels K + n are there, the node n above the K classes."""
        return "labels_above" in self.meta

    def hierarchy(self, distance: Distance) -> Hierarchy:
        """Return the dataset's tree over its classes in target order."""
        return _hierarchy(json.dumps(self.meta["paths"]), distance)

    @property
    def splits(self) -> list[str]:
        """Its splits: train, val, test, and "above" if some labels are nodes above the classes."""
        return list(self.meta["splits"])

    def size(self, split: str) -> int:
        """Return the number of examples of a split."""
        return int(self.meta["splits"][split])

    @property
    def vectors(self) -> dict[str, Any] | None:
        """The fields of `Vectors` where the dataset has features in place of images."""
        return self.meta.get("vectors")

    @property
    def files(self) -> list[str]:
        """The names of its files."""
        return ["meta.json", *(f"{split}-{part}.npy" for split in self.splits for part in (self._inputs, "labels"))]

    @property
    def _inputs(self) -> str:
        return "images" if self.vectors is None else "features"

    def arrays(self, split: str) -> tuple[NDArray[Any], Labels]:
        """Return the memory-mapped images [N, 3, H, W] uint8, or features [V, N, D], and the labels [N] of a split."""
        # Read-only: a private writable mapping would be charged against the memory there is.
        inputs = map_array(self.folder / f"{split}-{self._inputs}.npy")
        return inputs, load_array(self.folder / f"{split}-labels.npy")

    def ids(self, split: str) -> list[str] | None:
        """Return the file names of a split's examples, or None if the dataset was prepared without names.

        Raises:
            UserError: they differ from the prepared ones.
        """
        recorded = ids.get(split) if isinstance(ids := self.meta.get("ids"), dict) else None
        if recorded is None:
            return None
        path = self.folder / f"{split}-ids.json"
        try:
            content = read_bytes(path, LARGEST_IDS, follow=True)
            if sha256(content).hexdigest() != recorded:
                raise ValueError("its checksum differs")
            return [str(name) for name in json.loads(content)]
        except (OSError, ValueError) as error:
            raise UserError(f"{path} is damaged ({error}); remove {self.folder} and prepare it again") from None


@lru_cache(maxsize=2)  # both distances of a dataset; a large tree takes hundreds of megabytes
def _hierarchy(paths: str, distance: Distance) -> Hierarchy:
    """Return the tree of paths that are given as JSON, which the jobs of a process share."""
    return Hierarchy.from_paths({path[-1]: tuple(path) for path in json.loads(paths)}, distance)


def find(name: str, data_dir: Path) -> Prepared | None:
    """Return the prepared dataset, or None."""
    if name in ("", ".", "..") or "/" in name or "\0" in name:  # it may come from a received record
        raise UserError(f"{name[:80]!r} is not the name of a dataset")
    folder = data_dir / "prepared" / name
    try:
        if not (folder / "meta.json").exists():
            return None
        meta = parse_json_object(read_text(folder / "meta.json", follow=True))
        prepared = Prepared(folder, meta)
        tree = prepared.hierarchy("height")
        num_classes = tree.num_classes
        num_nodes = sum(tree.level_sizes)
        if not all(isinstance(text, str) for text in (meta["digest"], meta["remark"], meta.get("notice", ""))):
            raise ValueError("its digest, remark or notice is not text")
        for split in (*SPLITS, ABOVE) if ABOVE in meta["splits"] else SPLITS:
            images, labels = prepared.arrays(split)
            num = meta["splits"][split]
            vectors = prepared.vectors
            dtype = "uint8"
            if vectors is None:
                expected = (num, 3, *meta["image_size"])
            else:
                expected = (vectors["views"] if split == "train" else 1, num, vectors["num_channels"])
                dtype = vectors["dtype"]
            if images.shape != expected or images.dtype != np.dtype(dtype) or labels.shape != (num,):
                raise ValueError(f"{split} holds {images.shape} {images.dtype}, not {expected} {dtype}")
            num_labels = num_classes if split != ABOVE else num_nodes
            num_labels += num_nodes if split == "train" and prepared.has_labels_above else 0
            if labels.dtype != np.int64 or not 0 <= labels.min() <= labels.max() < num_labels:
                raise ValueError(f"the labels of {split} are not those of {num_labels} classes")
    except (FileNotFoundError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise UserError(f"{folder} is damaged ({error}); remove it and prepare {name} again") from None
    except OSError as error:  # no permission, no memory: preparing again would not help
        raise UserError(f"{folder} cannot be read ({error})") from None
    return prepared


def find_for_spec(data: DatasetSpec, data_dir: Path) -> Prepared | None:
    """Return the prepared form of the recipe that a spec names, or None; of a user's, else one with its digest."""
    variant = Data(dataset=image_dataset(data.name), jpeg_quality=data.jpeg_quality).variant
    prepared = find(variant, data_dir)
    if prepared is None and data.name not in recipe_names():
        for file in sorted((data_dir / "prepared").glob("[!.]*/meta.json")):
            with suppress(OSError, ValueError):
                if parse_json_object(read_text(file, follow=True)).get("digest") == data.digest:
                    return find(file.parent.name, data_dir)
    return prepared


def how_to_prepare(data: DatasetSpec) -> str:
    """Return the command that prepares a spec's data, of a user's by the file as `hierbench data new` names it."""
    name = data.name if data.name in recipe_names() else f"./{data.name}.toml"
    return f"hierbench data prepare {name}" + (" --protocol authors" if data.jpeg_quality else "")


def verify(name: str, data_dir: Path, requested_name: str = "") -> Prepared:
    """Read a whole prepared dataset and verify its digest; `requested_name` is how the user named it."""
    prepared = find(name, data_dir)
    if prepared is None:
        folders = folder_options(data_dir=data_dir)
        raise UserError(
            f"{name} is not prepared in {data_dir}; run: hierbench data prepare {requested_name or name}{folders}"
        )
    _compare(prepared)
    remember_check(prepared)
    return prepared


def check(prepared: Prepared, progress: Progress = lambda share: None) -> None:
    """Verify the digest of a prepared dataset, unless that was done for its files as they are now.

    This detects arrays that were changed in place after they were prepared.

    Args:
        prepared: the dataset.
        progress: called with the share that is read; not at all if nothing has to be read.

    Raises:
        UserError: the dataset is not the one that was prepared.
    """
    check_once(prepared.folder, prepared.files, lambda: _compare(prepared, progress))


def check_once(folder: Path, names: Iterable[str], compare: Callable[[], None]) -> None:
    """Call `compare`, which raises a UserError for changed files, unless that was done for these files as they are now.

    The result is recorded next to them with the state of the files, which includes the time when the inode was changed:
    no call can set that, so a record that was copied along with a folder is not valid for the copy.
    """
    state = _state(folder, names)
    with suppress(OSError, ValueError):
        if read_json_object(folder / CHECKED) == state:
            return
    if state not in verified_states:
        compare()
        if _state(folder, names) != state:
            raise UserError(f"{folder} is being changed by another program; run the command again")
        verified_states.append(state)
    with suppress(OSError, UserError):  # where nothing can be written, every process checks for itself
        write_json(refuse_links(folder.parents[1], *folder.parts[-2:]) / CHECKED, state)


def _compare(prepared: Prepared, progress: Progress = lambda share: None) -> None:
    digest = arrays_digest(
        prepared.meta["paths"], prepared.arrays, prepared.splits, progress=progress, vectors=prepared.vectors
    )
    if digest != prepared.digest:
        raise UserError(
            f"{prepared.folder} does not match its digest: it was changed after it was prepared; "
            f"remove it and prepare {prepared.folder.name} again"
        )


def remember_check(prepared: Prepared) -> None:
    """Record for this process that the files as they are now match the digest."""
    verified_states.append(_state(prepared.folder, prepared.files))


def _state(folder: Path, names: Iterable[str]) -> dict[str, Any]:
    """Return {file: [size, time of the content, time of the inode, inode]}, times in ns."""
    stats = {name: (folder / name).stat() for name in names}
    return {name: [at.st_size, at.st_mtime_ns, at.st_ctime_ns, at.st_ino] for name, at in stats.items()}


def arrays_digest(
    paths: list[list[str]],
    arrays: Callable[[str], tuple[NDArray[Any], Labels]],
    split_names: Iterable[str] = SPLITS,
    progress: Progress = lambda share: None,
    vectors: dict[str, Any] | None = None,
) -> str:
    """Return the SHA-256 over the classes' paths and, per split, all labels and all images, which `arrays` gives.

    Of features also over their type and scale, `vectors`.
    """
    digest = sha256(repr([list(path) for path in paths]).encode())
    if vectors is not None:
        digest.update(json.dumps(vectors, sort_keys=True).encode())
    splits = [arrays(split) for split in split_names]
    total = sum(len(labels) * (1 if vectors is None else len(images)) for images, labels in splits)
    done = 0
    for images, labels in splits:
        digest.update(labels.tobytes())
        for view in [images] if vectors is None else images:
            for start in range(0, len(view), IMAGES_PER_READ):
                block = view[start : start + IMAGES_PER_READ]
                digest.update(block.tobytes())
                done += len(block)
                progress(done / total)
                if start % RELEASED_ROWS == 0:
                    release(images)
    return digest.hexdigest()
