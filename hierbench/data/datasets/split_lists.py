"""Trees and split lists of iNaturalist 2019 and tieredImageNet-H: fetched, checked, and turned into rows.

Both come from the repository of Bertinetto et al., Making Better Mistakes, CVPR 2020, at one commit. Their licence
(CC BY-NC-SA 4.0) is not this project's, so they are fetched when they are needed and never shipped.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hierbench.data.datasets.image_finder import Locator
from hierbench.data.source import Labels, Piece, Request, Source, identity_of
from hierbench.data.writer import SPLITS
from hierbench.hierarchy.readers import edges_from_lines
from hierbench.utils.archives import DAMAGED, open_zip, zip_member
from hierbench.utils.download import DownloadError, Remote, discard, fetch
from hierbench.utils.errors import UserError

COMMIT = "f0bb7d0a7c4a9c7c9517045a4be4446e9baf824f"
URL = f"https://raw.githubusercontent.com/fiveai/making-better-mistakes/{COMMIT}"
LICENCE = (
    f"tree and split lists: github.com/fiveai/making-better-mistakes at {COMMIT[:7]} (Bertinetto et al., CVPR 2020), "
    "CC BY-NC-SA 4.0, not for commercial use"
)
IMAGE_SIZE = (224, 224)
LARGEST = 1 << 26  # bytes of a file, and of a list in it; all of tieredImageNet-H's have 1.8 MB


@dataclass(frozen=True)
class File:
    """A file of the repository and the digest it must have: SHA-256, or git's blob id ("blob <size>", SHA-1)."""

    path: str
    sha256: str = ""
    blob: str = ""

    @property
    def name(self) -> str:
        """The base name."""
        return self.path.rpartition("/")[2]

    def fits(self, content: bytes) -> bool:
        """Whether the content is the file's."""
        if self.sha256:
            return hashlib.sha256(content).hexdigest() == self.sha256
        return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest() == self.blob


@dataclass(frozen=True)
class Lists:
    """What the files say: the tree, and for each split the image names with their labels.

    Attributes:
        paths: {class: (coarsest, ..., class)} in sorted order of the class names.
        labels: per split [N].
        names: per split the N base names.
        checksums: SHA-256 of the two files.
    """

    paths: dict[str, tuple[str, ...]]
    labels: dict[str, Labels]
    names: dict[str, list[str]]
    checksums: dict[str, str]


def read_lists(tree: File, splits: File, downloads: Path, offline: Path | None) -> Lists:
    """Get both files and read them.

    Args:
        tree: "parent child" lines.
        splits: a zip with `<folder>/{train,val,test}/<class>.txt`, a name a line.
        downloads: where fetched files are kept.
        offline: folder to take them from instead, in the repository's folders or flat.

    Raises:
        UserError: a file is not to be had, has another checksum or contradicts the other one.
    """
    contents = {file: _content(file, downloads, offline) for file in (tree, splits)}
    paths = _paths(contents[tree].read_text(encoding="utf-8"))
    labels, names = _rows(contents[splits], paths)
    checksums = {file.name: hashlib.sha256(path.read_bytes()).hexdigest() for file, path in contents.items()}
    return Lists(paths, labels, names, checksums)


def open_listed(tree: File, splits: File, request: Request, source: Path, archive: str = "", md5: str = "") -> Source:
    """Return the images that the lists name, stretched (docs/protocols.md, row 24); they are located and decoded later.

    Args:
        tree: see `read_lists`.
        splits: see `read_lists`.
        request: says where the lists come from.
        source: an archive of the images, or a folder that holds images or archives at any depth.
        archive: the official archive, where there is a single one.
        md5: of that.
    """
    lists = read_lists(tree, splits, request.downloads, request.offline)
    locator = Locator(lists.names, IMAGE_SIZE)
    checksums, remarks = dict(lists.checksums), list[str]()

    def pieces() -> Iterator[Piece]:
        yield from locator.pieces(source)
        for name, found in locator.md5s.items() if md5 else ():
            checksums[name] = found
            if found != md5:
                remarks.append(f"{name} is not the official {archive}: its md5 is {found}")

    return Source(
        lists.paths, lists.labels, IMAGE_SIZE, pieces, lists.names, checksums, remarks, identity_of(source), LICENCE
    )


def _content(file: File, downloads: Path, offline: Path | None) -> Path:
    """Return where the checked file is."""
    if offline is not None:
        places = [offline / file.path, offline / file.name]
        found = [path for path in places if path.is_file()]
        if not found:
            raise UserError(f"--offline {offline}: no file {file.name}; it is {URL}/{file.path}")
        if not file.fits(found[0].read_bytes()):
            raise UserError(f"{found[0]} has another checksum than {file.name} at commit {COMMIT[:7]}")
        return found[0]
    folder = downloads / "making-better-mistakes"
    path = folder / file.name
    if path.is_file() and file.fits(path.read_bytes()):
        return path
    compared = f"it is compared with git's SHA-1 of it, {file.blob}"
    remote = Remote(file.name, f"{URL}/{file.path}", file.sha256, instead=compared, largest=LARGEST)
    try:
        path = fetch(remote, folder)
        if not file.fits(path.read_bytes()):
            raise DownloadError(f"it is not the file of commit {COMMIT[:7]}: it is not used")
    except DownloadError as error:
        discard(path)
        raise UserError(
            f"{file.name} could not be fetched from {remote.url} ({error}); get it elsewhere and give its folder "
            "with --offline"
        ) from None
    return path


def _paths(text: str) -> dict[str, tuple[str, ...]]:
    """Return {class: (coarsest, ..., class)} of "parent child" lines, the root left out."""
    parent = {child: above for above, child in edges_from_lines(text)}
    inner = set(parent.values())
    paths = {}
    for leaf in sorted(set(parent) - inner):
        path = [leaf]
        while (above := parent[path[-1]]) in parent:
            path.append(above)
        paths[leaf] = tuple(reversed(path))
    return paths


def _rows(archive: Path, paths: dict[str, tuple[str, ...]]) -> tuple[dict[str, Labels], dict[str, list[str]]]:
    """Return labels and names per split: classes in order, a class's images as listed."""
    listed: dict[tuple[str, str], list[str]] = {}
    try:
        with open_zip(archive) as content:
            for member in content.namelist():
                if match := re.fullmatch(r"[^/]+/(train|val|test)/([^/]+)\.txt", member):
                    listed[match[1], match[2]] = zip_member(content, member, LARGEST).decode("utf-8").split()
    except DAMAGED as error:
        raise UserError(f"{archive.name} is no whole zip file ({error})") from None
    odd = sorted({name for _, name in listed} ^ set(paths))
    if odd:
        raise UserError(f"{archive.name} and the tree do not have the same classes: {odd[0]} is in one alone")
    labels, names = {}, {}
    seen: dict[str, str] = {}
    for split in SPLITS:
        rows = [(label, image) for label, name in enumerate(paths) for image in listed.get((split, name), [])]
        for _, image in rows:
            if image in seen:
                raise UserError(f"{archive.name} lists {image} twice, in {seen[image]} and in {split}")
            seen[image] = split
        labels[split] = np.array([label for label, _ in rows], dtype=np.int64)
        names[split] = [image for _, image in rows]
    return labels, names
