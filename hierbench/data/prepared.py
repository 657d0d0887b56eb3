"""Prepared datasets: every image decoded, resized and stored once as uint8, with labels, tree and digest beside it.

A prepared dataset is a folder `<data-dir>/prepared/<name>/` with `meta.json` and, per split, `<split>-images.npy`
([N, 3, H, W] uint8) and `<split>-labels.npy` ([N] int64). It is built in a folder of another name and renamed when
whole, so that a killed preparation is never taken for a finished one.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from hierbench.data.image import Images
from hierbench.data.source import Labels
from hierbench.data.writer import SPLITS
from hierbench.hierarchy.tree import Distance, Hierarchy
from hierbench.utils.arrays import load_array, map_array
from hierbench.utils.errors import UserError
from hierbench.utils.files import LinkError, parse_json_object, read_json_object, read_text, refuse_links, write_json

CHECKED = "checked.json"  # beside the arrays: which state of them was compared with the digest
ROWS = 256  # images that are read at a time
Progress = Callable[[float], None]  # the share that is done
_checked: list[dict[str, Any]] = []  # records of what this process has compared


@dataclass(frozen=True)
class Prepared:
    """A prepared dataset on disk."""

    folder: Path
    meta: dict[str, Any]

    @property
    def digest(self) -> str:
        """SHA-256 over all images, labels and class names."""
        return str(self.meta["digest"])

    @cached_property
    def _hierarchies(self) -> dict[Distance, Hierarchy]:
        return {}

    def hierarchy(self, distance: Distance) -> Hierarchy:
        """Return the dataset's tree over its classes in target order."""
        if distance not in self._hierarchies:
            paths = {path[-1]: tuple(path) for path in self.meta["paths"]}
            self._hierarchies[distance] = Hierarchy.from_paths(paths, distance)
        return self._hierarchies[distance]

    def size(self, split: str) -> int:
        """Return the number of examples of a split."""
        return int(self.meta["splits"][split])

    def arrays(self, split: str) -> tuple[Images, Labels]:
        """Return the memory-mapped images [N, 3, H, W] uint8 and the labels [N] int64 of a split."""
        # Read-only: a private writable mapping would be charged against the memory there is.
        return map_array(self.folder / f"{split}-images.npy"), load_array(self.folder / f"{split}-labels.npy")


def variant_name(dataset: str, jpeg_quality: int = 0) -> str:
    """Return the name of a dataset's prepared form: its own, or one that says how the images were re-saved."""
    return f"{dataset}-jpeg{jpeg_quality}" if jpeg_quality else dataset


def folder_of(name: str, data_dir: Path) -> Path:
    """Return where a dataset's prepared arrays lie; a UserError for what is no name of a folder."""
    if name in ("", ".", "..") or "/" in name or "\0" in name:  # it may come out of a received record
        raise UserError(f"{name[:80]!r} is no name of a dataset")
    return data_dir / "prepared" / name


def find(name: str, data_dir: Path) -> Prepared | None:
    """Return the prepared dataset, or None where there is none."""
    folder = folder_of(name, data_dir)
    try:
        meta = parse_json_object(read_text(folder / "meta.json", follow=True))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UserError(f"{folder} can not be read ({error})") from None
    except ValueError as error:
        raise UserError(f"{folder} is damaged ({error}); remove it and prepare {name} again") from None
    try:
        prepared = Prepared(folder, meta)
        num_classes = prepared.hierarchy("height").num_classes
        if not all(isinstance(text, str) for text in (meta["digest"], meta["remark"], meta.get("notice", ""))):
            raise ValueError("what it says of itself is no text")
        for split in SPLITS:
            images, labels = prepared.arrays(split)
            expected = (meta["splits"][split], 3, *meta["image_size"])
            if images.shape != expected or images.dtype != np.uint8 or labels.shape != expected[:1]:
                raise ValueError(f"{split} holds {images.shape} {images.dtype}, not {expected} uint8")
            if labels.dtype != np.int64 or not 0 <= labels.min() <= labels.max() < num_classes:
                raise ValueError(f"the labels of {split} are not those of {num_classes} classes")
    except (FileNotFoundError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise UserError(f"{folder} is damaged ({error}); remove it and prepare {name} again") from None
    except OSError as error:  # no permission, no memory: nothing that preparing again would mend
        raise UserError(f"{folder} can not be read ({error})") from None
    return prepared


def verify(name: str, data_dir: Path) -> Prepared:
    """Read a prepared dataset whole and compare it with its digest."""
    there = find(name, data_dir)
    if there is None:
        raise UserError(f"{name} is not prepared in {data_dir}; run: hierbench data prepare {name}")
    _check_whole(there, lambda share: None)
    return there


def check(prepared: Prepared, progress: Progress | None = None) -> None:
    """Compare a prepared dataset with its digest, unless that was done for its files as they are now.

    Arrays that were changed in place would otherwise be trained on under the digest of what they were. The result is
    recorded beside them, with the state of the files that it is of. A state has the time when the inode was changed,
    which no call can set, so a record that came with a copied folder says nothing here.

    Args:
        prepared: the dataset.
        progress: called with the share that is read; not at all where there is nothing to do.

    Raises:
        UserError: the dataset is not what was prepared.
    """
    record = _record(prepared)
    with suppress(OSError, ValueError):
        if read_json_object(prepared.folder / CHECKED) == record:
            return
    if record not in _checked:
        _check_whole(prepared, progress or (lambda share: None))
    with suppress(OSError, LinkError):  # where nothing can be written, every process that trains checks for itself
        write_json(refuse_links(prepared.folder.parents[1], *prepared.folder.parts[-2:]) / CHECKED, record)


def _check_whole(prepared: Prepared, progress: Progress) -> None:
    before = _record(prepared)
    if digest_of(prepared.folder, prepared.meta["paths"], progress=progress) != prepared.digest:
        raise UserError(
            f"{prepared.folder} does not match its digest: it was changed after it was prepared; "
            f"remove it and prepare {prepared.folder.name} again"
        )
    if _record(prepared) != before:
        raise UserError(f"{prepared.folder} is being changed by another program; run the command again")
    remember_check(prepared)


def remember_check(prepared: Prepared) -> None:
    """Let this process know that the files as they are now match the digest."""
    _checked.append(_record(prepared))


def _record(prepared: Prepared) -> dict[str, Any]:
    """Return the digest and {file: [size, time of the content, time of the inode, inode]}, times in ns."""
    names = ("meta.json", *(f"{split}-{part}.npy" for split in SPLITS for part in ("images", "labels")))
    found = {name: (prepared.folder / name).stat() for name in names}
    files = {name: [is_.st_size, is_.st_mtime_ns, is_.st_ctime_ns, is_.st_ino] for name, is_ in found.items()}
    return {"digest": prepared.digest, "files": files}


def digest_of(
    folder: Path, paths: list[list[str]], files: dict[str, Path] | None = None, progress: Progress | None = None
) -> str:
    """Return the SHA-256 over the classes' paths and, per split, all labels and all images.

    Args:
        folder: of the prepared dataset.
        paths: of its classes.
        files: {split: file of its images} where they do not have their final names yet.
        progress: called with the share of the images that is read.
    """
    digest = sha256(repr([list(path) for path in paths]).encode())
    images = {split: map_array(files[split] if files else folder / f"{split}-images.npy") for split in SPLITS}
    total, done = sum(map(len, images.values())), 0
    for split, rows in images.items():
        digest.update(load_array(folder / f"{split}-labels.npy").tobytes())
        for start in range(0, len(rows), ROWS):
            digest.update(rows[start : start + ROWS].tobytes())
            if progress is not None:
                done += len(rows[start : start + ROWS])
                progress(done / total)
    return digest.hexdigest()
