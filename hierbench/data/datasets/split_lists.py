"""Trees and split lists of iNaturalist 2019 and tieredImageNet-H.

Both come from the repository of Bertinetto et al., Making Better Mistakes, CVPR 2020, at one commit. Their licence
(CC BY-NC-SA 4.0) is not this project's, so they are downloaded when they are needed and never shipped.
"""

import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hierbench.data.datasets.image_finder import Locator
from hierbench.data.source import Labels, Piece, Source, SourceRequest, source_identity
from hierbench.data.writer import SPLITS
from hierbench.hierarchy.readers import read_tree
from hierbench.utils.archives import ARCHIVE_ERRORS
from hierbench.utils.download import Remote, obtain
from hierbench.utils.errors import UserError
from hierbench.utils.files import file_digest

SPLIT_LISTS_COMMIT = "f0bb7d0a7c4a9c7c9517045a4be4446e9baf824f"
SPLIT_LISTS_URL = f"https://raw.githubusercontent.com/fiveai/making-better-mistakes/{SPLIT_LISTS_COMMIT}"
LICENCE = (
    f"tree and split lists: github.com/fiveai/making-better-mistakes at {SPLIT_LISTS_COMMIT[:7]} "
    "(Bertinetto et al., CVPR 2020), CC BY-NC-SA 4.0, not for commercial use"
)
IMAGE_SIZE = (224, 224)
MAX_LIST_BYTES = 1 << 26  # bytes of a file; all of tieredImageNet-H's have 1.8 MB


def listed_file(path: str, *, sha256: str = "", blob: str = "") -> Remote:
    """Return a file of the repository, with its digest: SHA-256, or git's blob id."""
    return Remote(path.rpartition("/")[2], f"{SPLIT_LISTS_URL}/{path}", sha256, blob, largest=MAX_LIST_BYTES)


@dataclass(frozen=True)
class Lists:
    """The tree and the lists, as `Source` has them; classes in sorted order."""

    paths: dict[str, tuple[str, ...]]
    labels: dict[str, Labels]
    names: dict[str, list[str]]
    checksums: dict[str, str]


def read_lists(tree: Remote, splits: Remote, downloads: Path, offline: Path | None) -> Lists:
    """Download both files if need be and read them.

    Args:
        tree: "parent child" lines.
        splits: a zip with `<folder>/{train,val,test}/<class>.txt`, one name per line.
        downloads: where downloaded files are kept.
        offline: folder to take them from instead, with the repository's folders or flat.

    Raises:
        UserError: a file cannot be downloaded, has another checksum or contradicts the other one.
    """
    tree_file, splits_file = (_file(file, downloads, offline) for file in (tree, splits))
    paths = read_tree(tree_file).paths
    labels, names = read_splits(splits_file, paths)
    checksums = {tree.name: file_digest(tree_file, follow=True), splits.name: file_digest(splits_file, follow=True)}
    return Lists(paths, labels, names, checksums)


def open_listed(
    tree: Remote, splits: Remote, request: SourceRequest, source: Path, archive: str = "", md5: str = ""
) -> Source:
    """Return the images that the lists name, stretched (docs/protocols.md, row 24); they are located and decoded later.

    `source` is an archive, or a folder that holds images or archives at any depth; where there is a single official
    archive, its name and MD5 are given.
    """
    lists = read_lists(tree, splits, request.downloads, request.offline)
    locator = Locator(lists.names, IMAGE_SIZE)
    checksums = dict(lists.checksums)
    remarks = list[str]()

    def pieces() -> Iterator[Piece]:
        yield from locator.pieces(source)
        for name, digest in locator.md5s.items() if md5 else ():
            checksums[name] = digest
            if digest != md5:
                remarks.append(f"{name} is not the official {archive}: its md5 is {digest}")

    return Source(
        lists.paths, lists.labels, IMAGE_SIZE, pieces, lists.names, checksums, remarks, source_identity(source), LICENCE
    )


def _file(file: Remote, downloads: Path, offline: Path | None) -> Path:
    """Return where the verified file is."""
    if offline is None:
        way_out = "get it elsewhere and give its folder with --offline"
        return obtain(file, downloads / "making-better-mistakes", way_out)
    places = (offline / file.url.removeprefix(f"{SPLIT_LISTS_URL}/"), offline / file.name)
    found_file = next((path for path in places if path.is_file()), None)
    if found_file is None:
        raise UserError(f"--offline {offline}: no file {file.name}; it is {file.url}")
    mismatch = file.mismatch(found_file)
    if mismatch:
        raise UserError(f"{found_file} is not {file.name} of commit {SPLIT_LISTS_COMMIT[:7]}: {mismatch}")
    return found_file


def read_splits(archive: Path, paths: dict[str, tuple[str, ...]]) -> tuple[dict[str, Labels], dict[str, list[str]]]:
    """Return labels and names per split: classes in order, a class's images as listed."""
    listed: dict[tuple[str, str], list[str]] = {}
    try:
        with zipfile.ZipFile(archive) as content:
            for member in content.namelist():
                match = re.fullmatch(r"[^/]+/(train|val|test)/([^/]+)\.txt", member)
                if match:
                    listed[match[1], match[2]] = content.read(member).decode("utf-8").split()
    except (*ARCHIVE_ERRORS, OSError) as error:  # an offset before its beginning is the system's error
        raise UserError(f"{archive.name} is not a complete zip file ({error})") from None
    odd = sorted({name for _, name in listed} ^ set(paths))
    if odd:
        raise UserError(f"{archive.name} and the tree do not have the same classes: {odd[0]} is in only one of them")
    labels = {}
    names = {}
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
