"""A dataset as its module gives it for preparing: classes, their tree, labels, and the images piece by piece."""

import math
import shutil
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hierbench.hierarchy.readers import shipped_paths as shipped_paths  # most datasets need it
from hierbench.utils.archives import ARCHIVE_ERRORS, open_tar, tar_members
from hierbench.utils.download import Remote, obtain
from hierbench.utils.errors import UserError
from hierbench.utils.files import refuse_links, remove_abandoned, temporary_beside

Labels = NDArray[np.int64]
UNPACKED = 1 << 33  # bytes of all files of an archive; FGVC-Aircraft's have 3 GiB
ROWS_PER_PIECE = 256  # rows written at a time, of images that are arrays already


class KeptError(UserError):
    """Something is missing or ambiguous; the data read before is valid and kept."""


class DamagedArchiveError(KeptError):
    """An archive is damaged, so that nothing of it is kept: `rows` are the (split, row) read from it."""

    def __init__(self, message: str, rows: list[tuple[str, int]]) -> None:
        super().__init__(message)
        self.rows = rows


@dataclass(frozen=True)
class SourceRequest:
    """The request to prepare a dataset.

    Attributes:
        source: the user's own copy; None downloads where the licence allows.
        downloads: where a download goes.
        offline: folder that holds the trees and split lists that are otherwise downloaded.
        jpeg_quality: re-save the images as JPEG of this quality first (docs/protocols.md, row 22); 0 does not.
    """

    source: Path | None
    downloads: Path
    offline: Path | None = None
    jpeg_quality: int = 0


@dataclass(frozen=True)
class Vectors:
    """Vectors of numbers that a source has in place of images.

    Attributes:
        num_channels: D.
        views: V, vectors of each training example; validation and test have one.
        dtype: of the numbers, by its name.
        scale: [D], value = number x scale; None where the numbers are the values.
    """

    num_channels: int
    views: int
    dtype: str
    scale: tuple[float, ...] | None = None


@dataclass(frozen=True)
class Piece:
    """Images, or vectors, of consecutive rows of a split, and how to get them.

    Attributes:
        split: its name.
        start: the first row.
        load: returns uint8 [n, 3, H, W] or raises an UnreadableImageError; may run in any thread, in any order. Of
            vectors, [n, D]; row v N + i is view v of example i.
    """

    split: str
    start: int
    load: Callable[[], NDArray[Any]]


@dataclass(frozen=True)
class Source:
    """A dataset ready to be prepared.

    Attributes:
        paths: {class: (coarsest, ..., class)}; its order is the target order.
        labels: [N] of train, val and test; and of "above", node numbers, if some labels are nodes above the classes. In
            train K + n stands for the node n above the K classes, as `Nodes` numbers it.
        image_size: (H, W) of every image; None of vectors.
        pieces: yields the images, in any order; a row that no piece brings is missing.
        names: file names of the rows' images, where lists of names define the dataset; such images may be missing.
        checksums: of the files that were read, by name; kept in meta.json. Complete when `pieces` is exhausted.
        remarks: notes for the user, kept in meta.json, e.g. that an archive is not the official one; complete as above.
        identity: of the source; a preparation is resumed only with the same, and never with "".
        notice: the data's licence; shown to the user and kept in meta.json.
        ids: file names of the rows' images, or paths, by which predictions made elsewhere are put in order; by default
            `names`, or nothing.
        state: digests of the inputs of a user's dataset; kept in meta.json.
        messages: lines for the user while it is prepared.
        vectors: features in place of images.
        late_remarks: returns remarks that are known once all images are read.
        skip_broken: whether images that cannot be read are left out.
        ordered: whether the rows are in the official order, which `evaluation.drop_order = "file"` goes by.
    """

    paths: dict[str, tuple[str, ...]]
    labels: dict[str, Labels]
    image_size: tuple[int, int] | None
    pieces: Callable[[], Iterator[Piece]]
    names: dict[str, list[str]] = field(default_factory=dict)
    checksums: dict[str, str] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)
    identity: str = ""
    notice: str = ""
    ids: dict[str, list[str]] = field(default_factory=dict)
    state: dict[str, str] = field(default_factory=dict)
    messages: list[str] = field(default_factory=list)
    vectors: Vectors | None = None
    ordered: bool = True
    late_remarks: Callable[[], list[str]] = list
    skip_broken: bool = False

    def shape(self, split: str) -> tuple[int, ...]:
        """Return [N, 3, H, W] of a split's images, or [V, N, D] of its vectors."""
        num = len(self.labels[split])
        if self.vectors is not None:
            return self.vectors.views if split == "train" else 1, num, self.vectors.num_channels
        assert self.image_size is not None
        return num, 3, *self.image_size

    def num_bytes(self) -> int:
        """Return the size of all arrays of images or vectors."""
        size = 1 if self.vectors is None else np.dtype(self.vectors.dtype).itemsize
        return sum(math.prod(self.shape(split)) * size for split in self.labels)


def source_identity(source: Path) -> str:
    """Return a text that changes when another folder or archive is given, or the archive is replaced."""
    status = source.resolve().stat()
    stamp = f" {status.st_size} {status.st_mtime_ns}" if source.is_file() else ""
    return f"{source.resolve()}{stamp}"


def obtain_archive(archive: Remote, downloads: Path, dataset: str) -> Path:
    """Return a dataset's official archive, downloaded with progress unless it is there."""
    way_out = f"get {archive.name} elsewhere and run: hierbench data prepare {dataset} --source FILE"
    return obtain(archive, downloads, way_out)


def source_root(
    request: SourceRequest, folder: str, archive: Remote, dataset: str, is_whole: Callable[[Path], bool]
) -> Path:
    """Return the folder that holds a dataset's `folder`: the user's, or the one where an archive is unpacked.

    The official archive is downloaded if the user gives nothing, unless the downloads are already `is_whole`.
    """
    source = request.source
    if source is None:
        if is_whole(request.downloads):
            return request.downloads
        source = obtain_archive(archive, request.downloads, dataset)
    root = source if source.is_dir() else unpack(source, request.downloads)
    return root.parent if root.name == folder else root


def unpack(archive: Path, folder: Path) -> Path:
    """Unpack a tar archive of files and folders into `folder` and return it.

    Raises:
        UserError: it is damaged, or has a link, a device or a member that would leave the folder; nothing is kept.
    """
    if not archive.is_file():
        raise UserError(f"no archive {archive}")
    refuse_links(folder.parent, folder.name).mkdir(parents=True, exist_ok=True)
    remove_abandoned(folder, "unpacked")
    staging = temporary_beside(folder / "unpacked")
    total = 0
    try:
        staging.mkdir()
        with open_tar(archive) as stream:
            for tar, member in tar_members(stream):
                if not (member.isfile() or member.isdir()):
                    raise tarfile.ReadError(f"{member.name[:80]!r} is a link or a device")
                total = total + member.size
                if total > UNPACKED:
                    raise tarfile.ReadError(f"it holds more than {UNPACKED >> 30} GiB")
                tar.extract(member, staging, set_attrs=False, filter="data")
        for entry in staging.iterdir():
            if (folder / entry.name).is_dir():
                shutil.rmtree(folder / entry.name)
            entry.rename(folder / entry.name)
    except ARCHIVE_ERRORS as error:
        raise UserError(f"{archive.name} is not a complete tar archive ({error})") from None
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return folder
