"""Birds of CUB-200-2011 (Wah et al., 2011): photographs of 200 species or a part of them, stretched to 224x224.

Read from the official folder, or from the public part of 100 species. Its four lists have a comma after the number,
and its images for training are marked 0: they are 29 or 30 of each class, as the official ones. Train is the official
training images minus the last tenth of each class's, which are validation.
"""

import re
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from hierbench.data.image import decode_file
from hierbench.data.source import Piece, Source, SourceRequest, shipped_paths, source_identity, source_root
from hierbench.data.writer import SPLITS
from hierbench.utils.download import Remote
from hierbench.utils.errors import UserError
from hierbench.utils.files import file_digest, read_given

CUB_FOLDER = "CUB_200_2011"
CUB_ARCHIVE = Remote(
    "CUB-200-2011 (for non-commercial research and education only)",
    f"https://data.caltech.edu/records/65de6-vp158/files/{CUB_FOLDER}.tgz",
)
CUB_LISTS = ("classes", "images", "image_class_labels", "train_test_split")
HELD_OUT = 10  # one in ten of each class's training images
CUB_SIZE = (224, 224)


def open_source(request: SourceRequest, tree: str = "cub") -> Source:
    """Read the lists; classes that the shipped tree does not have are left out."""
    root = source_root(
        request, CUB_FOLDER, CUB_ARCHIVE, tree, lambda downloads: (downloads / CUB_FOLDER / "images").is_dir()
    )
    folder = next((place for place in (root / CUB_FOLDER, root) if (place / "images.txt").is_file()), None)
    if folder is None:
        part = ", or of cub100 its public part" if tree != "cub" else ""
        raise UserError(f"no file images.txt in {root}; --source takes the folder {CUB_FOLDER} or its archive{part}")
    classes, images, label_of, mark = (_read_list(folder / f"{name}.txt") for name in CUB_LISTS)
    training_mark = "0" if "," in read_given(folder / "train_test_split.txt", "train_test_split.txt") else "1"
    paths = shipped_paths(tree)
    names = {number: re.sub(r"^\d+\.", "", name) for number, name in classes.items()}
    absent = paths.keys() - set(names.values())
    if absent:
        raise UserError(f"{folder / 'classes.txt'} does not list {min(absent)}, a class of {tree}")
    target = {name: place for place, name in enumerate(paths)}
    listed: dict[str, list[tuple[int, str]]] = {split: [] for split in SPLITS}
    training = defaultdict[int, list[str]](list)
    for number, file in images.items():
        name = names.get(label_of.get(number, ""), "")
        if name in target and mark.get(number) == training_mark:
            training[target[name]].append(file)
        elif name in target:
            listed["test"].append((target[name], file))
    for place in sorted(training):
        num_held = max(1, len(training[place]) // HELD_OUT)
        listed["train"] += [(place, file) for file in training[place][:-num_held]]
        listed["val"] += [(place, file) for file in training[place][-num_held:]]
    labels = {split: np.array([place for place, _ in rows], dtype=np.int64) for split, rows in listed.items()}

    def pieces() -> Iterator[Piece]:
        for split, rows in listed.items():
            for row, (_, file) in enumerate(rows):
                yield Piece(split, row, partial(decode_file, folder / "images" / file, CUB_SIZE))

    checksums = {f"{name}.txt": file_digest(folder / f"{name}.txt", follow=True) for name in CUB_LISTS}
    ids = {split: [file for _, file in rows] for split, rows in listed.items()}
    return Source(paths, labels, CUB_SIZE, pieces, checksums=checksums, identity=source_identity(folder), ids=ids)


def _read_list(file: Path) -> dict[str, str]:
    """Return {number: value} of the lines "NUMBER VALUE" of a list."""
    rows = dict[str, str]()
    for line in read_given(file, str(file)).splitlines():
        match = re.fullmatch(r"(\d+)[ ,]+(\S+)", line.strip())
        if match is None or ".." in match[2] or match[2].startswith("/"):
            raise UserError(f"{file} has a line that is not 'number value': {line[:80]!r}")
        rows[match[1]] = match[2]
    return rows
