"""Grocery Store (Klasson et al., 2019): 81 classes of photographs, read from the authors' repository in its splits."""

import re
from collections.abc import Iterator
from functools import partial
from hashlib import sha256

import numpy as np

from hierbench.data.image import decode_file
from hierbench.data.source import Piece, Source, SourceRequest, shipped_paths, source_identity, source_root
from hierbench.data.writer import SPLITS
from hierbench.utils.download import Remote
from hierbench.utils.errors import UserError
from hierbench.utils.files import read_given

REPOSITORY = "https://github.com/marcusklasson/GroceryStoreDataset"
GROCERY_COMMIT = "fc80ba90f803d79d0383df52c5a4ac5de99ff6fc"
GROCERY_FOLDER = f"GroceryStoreDataset-{GROCERY_COMMIT}"
# Without a digest: GitHub packs the archive anew, so the lists within are compared instead.
GROCERY_ARCHIVE = Remote("Grocery Store (MIT licence)", f"{REPOSITORY}/archive/{GROCERY_COMMIT}.tar.gz")
LISTS = {
    "train": "b6d6a4d25fc2a7604f4bbd4e8010516f3bb643f727fc60ef5fca042edd01294f",
    "val": "a2a2bdf8ce34196c1a1dd554bd67e780793aab9363dd40d6cf50fe2d168a78b6",
    "test": "9a464934780665c0024db405571c0dd2d149488a245f476557de7f1c31cf8a93",
}
IMAGE_LINE = re.compile(r"((?:train|val|test)(?:/[\w-]+)+\.jpg), (\d{1,2}), \d{1,2}")  # image, fine class, coarse class
GROCERY_SIZE = (224, 224)


def open_source(request: SourceRequest) -> Source:
    """Read the lists; the source is the repository, its folder `dataset` or its archive, None downloads that."""
    root = source_root(
        request, GROCERY_FOLDER, GROCERY_ARCHIVE, "grocery", lambda downloads: (downloads / GROCERY_FOLDER).is_dir()
    )
    places = (root / GROCERY_FOLDER / "dataset", root / "dataset", root)
    folder = next((place for place in places if (place / "train.txt").is_file()), None)
    if folder is None:
        raise UserError(f"no file train.txt in {root} or its folder dataset; --source takes a copy of {REPOSITORY}")
    paths = shipped_paths("grocery")
    names = dict[str, list[str]]()
    labels = {}
    checksums = {}
    for split in SPLITS:
        text = read_given(folder / f"{split}.txt", f"{split}.txt")
        rows = [_row(line, split, len(paths)) for line in text.splitlines()]
        names[split] = [name for name, _ in rows]
        labels[split] = np.array([label for _, label in rows], dtype=np.int64)
        checksums[f"{split}.txt"] = sha256(text.encode()).hexdigest()

    def pieces() -> Iterator[Piece]:
        for split, listed in names.items():
            for row, name in enumerate(listed):
                yield Piece(split, row, partial(decode_file, folder / name, GROCERY_SIZE))

    changed = [f"{split}.txt" for split in SPLITS if checksums[f"{split}.txt"] != LISTS[split]]
    remarks = [f"{', '.join(changed)} differ from the official lists"] if changed else []
    identity = source_identity(folder)
    return Source(
        paths, labels, GROCERY_SIZE, pieces, checksums=checksums, remarks=remarks, identity=identity, ids=names
    )


def _row(line: str, split: str, num_classes: int) -> tuple[str, int]:
    match = IMAGE_LINE.fullmatch(line.strip())
    if match is None or int(match[2]) >= num_classes:
        raise UserError(f"{split}.txt has a line that is not 'image, class, coarse class': {line[:80]!r}")
    return match[1], int(match[2])
