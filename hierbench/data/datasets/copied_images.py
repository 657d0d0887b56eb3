"""Image sets that are read from a public copy: listed, grouped so that one thing is on one side, and split.

Images that are equal, or that `benchmarks/near_equal` lists as nearly so, are one group, as are those that a dataset
groups itself (frames of a track, views of an object). A group is on one side of every split.
"""

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from hierbench.data.group_splits import DRAWN_SHARES, draw_splits
from hierbench.data.image import Images, decode
from hierbench.data.source import Piece, Source, SourceRequest, shipped_paths, source_identity, source_root
from hierbench.data.writer import SPLITS
from hierbench.utils.download import Remote
from hierbench.utils.errors import UserError
from hierbench.utils.files import read_bytes
from hierbench.utils.text import counted

MAX_COPIED_BYTES = 1 << 24  # bytes of an image file; the largest here has 1.1 MB


class Copy(NamedTuple):
    """A public copy of an image set: where it is, at which commit, and the digest of its images (see `open_images`)."""

    title: str  # with the licence, shown to the user
    repository: str
    commit: str
    digest: str

    @property
    def folder(self) -> str:
        """The folder in the archive of the repository."""
        return f"{self.repository.rpartition('/')[2]}-{self.commit}"

    @property
    def archive(self) -> Remote:
        """The archive; without a digest, since GitHub packs it anew: the images within are compared instead."""
        return Remote(self.title, f"https://github.com/{self.repository}/archive/{self.commit}.tar.gz")


@dataclass(frozen=True)
class CopiedImage:
    """An image of a copy.

    Attributes:
        name: its path in the copy.
        label: its class.
        split: "train" or "test" where the set has an official split, "" where it is drawn.
        group: of the thing that it shows, "" for a thing of its own.
        read: returns the bytes of its file.
        decode: returns its pixels from these.
    """

    name: str
    label: str
    read: Callable[[], bytes]
    split: str = ""
    group: str = ""
    decode: Callable[[bytes, str, tuple[int, int]], Images] = decode


def find_copy(request: SourceRequest, copy: Copy, dataset: str, *marks: str) -> Path:
    """Return the folder that holds a path of `marks`: of the user's folder, or of the archive, which is downloaded.

    Raises:
        UserError: there is none.
    """
    root = source_root(request, copy.folder, copy.archive, dataset, lambda folder: (folder / copy.folder).is_dir())
    for place in (root / copy.folder, root):
        if any((place / mark).exists() for mark in marks):
            return place
    raise UserError(f"no {' or '.join(marks)} in {root}; --source takes a copy of github.com/{copy.repository}")


def images_below(root: Path, pattern: str) -> Iterator[tuple[Path, str]]:
    """Yield the files that match a pattern below a folder, in sorted order, and their paths below it."""
    for path in sorted(root.glob(pattern)):
        if not path.name.startswith("."):
            yield path, path.relative_to(root).as_posix()


def file_reader(path: Path) -> Callable[[], bytes]:
    """Return a function that reads an image file of bounded size."""
    return partial(read_bytes, path, MAX_COPIED_BYTES, follow=True)


def class_folders(
    root: Path, pattern: str, split: str = "", names: Mapping[str, str] | None = None
) -> list[CopiedImage]:
    """Return the images of a folder per class; `names` gives the class of folders that are named otherwise."""
    return [
        CopiedImage(name, (names or {}).get(path.parent.name, path.parent.name), file_reader(path), split)
        for path, name in images_below(root, pattern)
    ]


def open_images(
    dataset: str,
    root: Path,
    images: Sequence[CopiedImage],
    size: tuple[int, int],
    digest: str,
    shares: Mapping[str, float] = DRAWN_SHARES,
    notice: str = "",
) -> Source:
    """Return images as a source: read once for their digests, grouped, and split.

    The digest of a copy is the SHA-256 of the lines "PATH SHA-256" of its images, sorted by path.

    Args:
        dataset: the name of the set, of its tree, and of the seed of the draw.
        root: the folder of the copy.
        images: in any order.
        size: (H, W).
        digest: of the copy.
        shares: see `draw_splits`.
        notice: the licence.

    Raises:
        UserError: an image is of a class that the tree does not have, or a class of the tree has fewer than 3 images.
    """
    paths = shipped_paths(dataset)
    images = sorted(images, key=lambda image: image.name)
    target_of = {name: target for target, name in enumerate(paths)}
    unknown = next((image for image in images if image.label not in target_of), None)
    if unknown is not None:
        raise UserError(f"{unknown.name} in {root}: {unknown.label[:80]!r} is no class of {dataset}")
    targets = np.array([target_of[image.label] for image in images], dtype=np.int64)
    few = np.flatnonzero(np.bincount(targets, minlength=len(paths)) < 3)
    if len(few):
        raise UserError(f"{root} has fewer than 3 images of {list(paths)[few[0]]}")
    contents = [sha256(image.read()).hexdigest() for image in images]
    lines = "".join(f"{image.name} {content}\n" for image, content in zip(images, contents, strict=True))
    actual = sha256(lines.encode()).hexdigest()
    groups = group_images(images, contents, near_equal(dataset))
    fixed = [image.split for image in images]
    seed = int(sha256(dataset.encode()).hexdigest()[:8], 16)
    drawn = np.array(draw_splits(targets, groups, fixed, seed, shares))
    num_left_out = int((drawn == "").sum())
    remarks = [f"the images are not those of the copy that was measured (SHA-256 {actual[:12]})"] * (actual != digest)
    if num_left_out:
        remarks.append(f"{counted(num_left_out, 'training image', ('is', 'are'))} left out, of groups that test has")
    rows = {split: np.flatnonzero(drawn == split) for split in SPLITS}

    def pieces() -> Iterator[Piece]:
        for split, places in rows.items():
            for row, place in enumerate(places):
                yield Piece(split, row, partial(_load, images[place], size))

    return Source(
        paths,
        {split: targets[places] for split, places in rows.items()},
        size,
        pieces,
        checksums={"images": actual},
        remarks=remarks,
        identity=source_identity(root),
        ids={split: [images[place].name for place in places] for split, places in rows.items()},
        notice=notice,
    )


def _load(image: CopiedImage, size: tuple[int, int]) -> Images:
    return image.decode(image.read(), image.name, size)


def near_equal(dataset: str) -> list[tuple[str, ...]]:
    """Return the groups of nearly equal images that the project ships for a dataset, by their paths in the copy."""
    file = resources.files("hierbench.benchmarks").joinpath(f"near_equal/{dataset}.csv")
    return [tuple(row) for row in csv.reader(file.read_text("utf-8").splitlines())] if file.is_file() else []


def group_images(
    images: Sequence[CopiedImage], contents: Sequence[str], near: Iterable[Sequence[str]]
) -> NDArray[np.int64]:
    """Return the number of each image's group: of its own, of images with equal bytes, and near-equal ones, joined."""
    members: dict[str, list[int]] = {}
    for place, (image, content) in enumerate(zip(images, contents, strict=True)):
        members.setdefault(f"bytes {content}", []).append(place)
        if image.group:
            members.setdefault(f"group {image.group}", []).append(place)
    place_of = {image.name: place for place, image in enumerate(images)}
    near_places = [[place_of[name] for name in names if name in place_of] for names in near]
    edges = [edge for group in [*members.values(), *near_places] for edge in pairwise(group)]
    ends = np.array(edges, dtype=np.int64).reshape(-1, 2).T
    graph = coo_array((np.ones(len(edges)), (ends[0], ends[1])), shape=(len(images), len(images)))
    return np.asarray(connected_components(graph, directed=False)[1], dtype=np.int64)
