"""Tiny ImageNet: 200 classes of 64x64 photographs, read straight from the official zip.

Train is the train folder minus the last 10% of each class's images by number, which are validation; test is the
labelled val folder. A zip with fewer images of each class works too. The tree is derived from WordNet, see
benchmarks/hierarchies/derive_from_wordnet.py.
"""

import re
import zipfile
from collections import defaultdict
from collections.abc import Iterator
from functools import partial

import numpy as np
from torch import Tensor

from hierbench.data.image import Images, UnreadableImageError, decode
from hierbench.data.source import Piece, Source, SourceRequest, obtain_archive, shipped_paths, source_identity
from hierbench.utils.archives import ARCHIVE_ERRORS, zip_member
from hierbench.utils.download import Remote
from hierbench.utils.errors import UserError
from hierbench.utils.files import file_digest

ROOT = "tiny-imagenet-200"
TINY_IMAGENET_SHA256 = "6198c8ae015e2b3e007c7841da39ec069199b9aa3bfa943a462022fe5e43c821"
TINY_IMAGENET_ARCHIVE = Remote(
    "the zip of Tiny ImageNet (for research use only)", f"http://cs231n.stanford.edu/{ROOT}.zip", TINY_IMAGENET_SHA256
)
TINY_IMAGENET_SIZE = 64
VAL_SHARE = 10  # one in ten of each class's train images
MAX_MEMBER_BYTES = 1 << 20  # bytes of a member; the largest, words.txt aside, is a list of 0.5 MB


def open_source(request: SourceRequest) -> Source:
    """Read the zip's contents and annotations; the source is the zip or a folder that holds it, None downloads it."""
    source = request.source
    if source is None:
        path = obtain_archive(TINY_IMAGENET_ARCHIVE, request.downloads, "tiny-imagenet")
    else:
        path = source / f"{ROOT}.zip" if source.is_dir() else source
    if not path.is_file():
        raise UserError(f"no archive {path}; give the zip of Tiny ImageNet with --source")
    try:
        archive = zipfile.ZipFile(path)
        wnids = zip_member(archive, f"{ROOT}/wnids.txt", MAX_MEMBER_BYTES).decode("ascii").split()
        annotations = (
            zip_member(archive, f"{ROOT}/val/val_annotations.txt", MAX_MEMBER_BYTES).decode("ascii").splitlines()
        )
    except (*ARCHIVE_ERRORS, OSError) as error:  # an offset before its beginning is the system's error
        raise UserError(f"{path.name} is not a complete zip file ({error})") from None
    except KeyError as error:
        raise UserError(f"{path.name} is not Tiny ImageNet's archive: {str(error.args[0]).strip()}") from None

    paths = shipped_paths("tiny-imagenet")
    if set(wnids) != set(paths):
        odd = sorted(set(wnids) ^ set(paths))[0]
        raise UserError(f"{path.name}: wnids.txt does not list the 200 classes of Tiny ImageNet ({odd} differs)")
    index = {name: i for i, name in enumerate(paths)}
    train, val = _train_and_val(archive.namelist(), index, path.name)
    test = _test_images(annotations, index, set(archive.namelist()), path.name)

    items = {"train": train, "val": val, "test": test}
    labels = {split: np.array([label for _, label in rows], dtype=np.int64) for split, rows in items.items()}

    def pieces() -> Iterator[Piece]:
        for split, rows in items.items():
            for row, (name, _) in enumerate(rows):
                yield Piece(split, row, partial(_load, archive, name))

    ids = {split: [name.rpartition("/")[2] for name, _ in rows] for split, rows in items.items()}
    checksums = {path.name: file_digest(path, follow=True)}
    return Source(
        paths,
        labels,
        (TINY_IMAGENET_SIZE, TINY_IMAGENET_SIZE),
        pieces,
        checksums=checksums,
        identity=source_identity(path),
        ids=ids,
    )


def _load(archive: zipfile.ZipFile, name: str) -> Images:
    def of_size(pixels: Tensor) -> Tensor:
        height, width = pixels.shape[1:]
        if (height, width) != (TINY_IMAGENET_SIZE, TINY_IMAGENET_SIZE):
            raise ValueError(f"it is {width}x{height}, not {TINY_IMAGENET_SIZE}x{TINY_IMAGENET_SIZE}")
        return pixels

    try:
        content = zip_member(archive, name, MAX_MEMBER_BYTES)
    except (*ARCHIVE_ERRORS, OSError) as error:
        raise UnreadableImageError(f"image {name} cannot be read ({error})") from None
    return decode(content, name, (TINY_IMAGENET_SIZE, TINY_IMAGENET_SIZE), of_size)


def _train_and_val(
    names: list[str], index: dict[str, int], archive: str
) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
    numbered: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for name in names:
        match = re.fullmatch(rf"{ROOT}/train/(n\d+)/images/\1_([0-9]{{1,18}})\.JPEG", name)
        if match:
            numbered[match[1]].append((int(match[2]), name))
    train = []
    val = []
    for wnid, label in index.items():
        images = [name for _, name in sorted(numbered[wnid])]
        if len(images) < 2:
            raise UserError(f"{archive}: class {wnid} has {len(images)} train images; at least 2 are needed")
        held_out = max(1, len(images) // VAL_SHARE)
        train += [(name, label) for name in images[:-held_out]]
        val += [(name, label) for name in images[-held_out:]]
    return train, val


def _test_images(annotations: list[str], index: dict[str, int], names: set[str], archive: str) -> list[tuple[str, int]]:
    test = []
    for line in annotations:
        fields = line.split("\t")
        if len(fields) < 2 or fields[1] not in index:
            raise UserError(f"{archive}: val_annotations.txt has a line that is not 'image class ...': {line[:80]!r}")
        name = f"{ROOT}/val/images/{fields[0]}"
        if name not in names:
            raise UserError(f"{archive}: val_annotations.txt lists {fields[0]}, which is not in val/images")
        test.append((name, index[fields[1]]))
    if not test:
        raise UserError(f"{archive}: val_annotations.txt lists no images")
    return test
