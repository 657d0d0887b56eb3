"""ImageNet-1K: the user's own ILSVRC2012, as folders or as its official tar archives; never downloaded.

Train is the training images less the last 50 of each class by number (a tenth in a smaller copy), which are
validation; test is the official validation set. The tree is derived from WordNet, see
benchmarks/hierarchies/derive_from_wordnet.py.
"""

import io
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from hierbench.data.datasets.image_finder import ARCHIVES, Locator, files_below
from hierbench.data.source import Piece, Source, SourceRequest, shipped_paths, source_identity
from hierbench.utils.archives import ARCHIVE_ERRORS, open_tar, tar_members, tar_names
from hierbench.utils.errors import UserError
from hierbench.utils.files import read_bytes

IMAGE_SIZE = (224, 224)
VAL_PER_CLASS = 50
TRAIN_NAME = re.compile(r"(n\d{8})_(\d{1,18})\.JPEG")
TEST_NAME = re.compile(r"ILSVRC2012_val_\d{8}\.JPEG")
DEVKIT = "ILSVRC2012_devkit_t12"
TRUTH = "ILSVRC2012_validation_ground_truth.txt"
META = "meta.mat"
MAX_DEVKIT_BYTES = 1 << 24  # bytes of a file of the devkit; its meta.mat has 1 MB
NOTICE = "ImageNet (ILSVRC2012): for non-commercial research and education, by the terms of image-net.org"


def open_source(request: SourceRequest) -> Source:
    """Read which images there are; the source is a folder with `train` and `val`, or with the official tars.

    `val` has a folder per class, or is flat or a tar beside the devkit, which has its labels.
    """
    source = request.source
    if source is None:
        raise UserError(
            "imagenet1k is your own copy of ImageNet (ILSVRC2012), which is never downloaded; with the folder of its "
            "images or tar archives run: hierbench data prepare imagenet1k --source FOLDER"
        )
    if not source.is_dir():
        raise UserError(f"no folder {source}; --source takes the folder that holds ILSVRC2012's train and val, or tars")
    paths = shipped_paths("imagenet1k")
    index = {wnid: label for label, wnid in enumerate(paths)}
    train: dict[str, set[str]] = defaultdict(set)
    test: dict[str, str] = {}  # name: class, "" where its folder does not say
    for folder, name in _names(source):
        match = TRAIN_NAME.fullmatch(name)
        if match:
            if match[1] in index:
                train[match[1]].add(name)
        elif TEST_NAME.fullmatch(name):
            test[name] = folder if folder in index else ""
    missing = [wnid for wnid in index if len(train[wnid]) < 2]
    if missing:
        raise UserError(f"{source}: {len(missing):,} of 1,000 classes have fewer than 2 train images: {missing[0]}")
    if not test:
        raise UserError(f"{source} has no images ILSVRC2012_val_*.JPEG: val or ILSVRC2012_img_val.tar is missing")
    if not all(test.values()):
        test = _validation_classes(source, sorted(test))
    names: dict[str, list[str]] = {"train": [], "val": [], "test": sorted(test)}
    labels: dict[str, list[int]] = {"train": [], "val": [], "test": [index[test[name]] for name in names["test"]]}
    for wnid, label in index.items():
        images = sorted(train[wnid], key=_number)
        held_out = min(VAL_PER_CLASS, max(1, len(images) // 10))
        for split, part in (("train", images[:-held_out]), ("val", images[-held_out:])):
            names[split] += part
            labels[split] += [label] * len(part)
    locator = Locator(names, IMAGE_SIZE)
    checksums: dict[str, str] = {}

    def pieces() -> Iterator[Piece]:
        yield from locator.pieces(source)
        checksums.update({f"{name} (md5)": md5 for name, md5 in locator.md5s.items()})

    return Source(
        paths,
        {split: np.array(rows, dtype=np.int64) for split, rows in labels.items()},
        IMAGE_SIZE,
        pieces,
        names=names,
        checksums=checksums,
        identity=source_identity(source),
        notice=NOTICE,
    )


def _number(name: str) -> int:
    return int(name.partition("_")[2].partition(".")[0])


def _names(source: Path) -> Iterator[tuple[str, str]]:
    """Yield (folder, name) of every image below a folder, then of those in its tar archives."""
    archives = []
    for file in files_below(source):
        folder, _, name = file.rpartition("/")
        if name.endswith(".JPEG"):
            yield folder.rpartition("/")[2], name
        elif name.endswith(ARCHIVES) and DEVKIT not in name:
            archives.append(Path(file))
    for archive in sorted(archives):
        try:
            yield from (("", name.rpartition("/")[2]) for name in tar_names(archive))
        except ARCHIVE_ERRORS as error:
            raise UserError(f"{archive} is truncated or damaged ({error})") from None


def _validation_classes(source: Path, names: list[str]) -> dict[str, str]:
    """Return {image of the official validation set: class}, from the devkit."""
    truth, meta = _read_devkit(source)
    try:
        numbers = [int(line) for line in truth.split()]
        wnid_of = _read_wnids(meta)
        return {name: wnid_of[numbers[_number(name.removeprefix("ILSVRC2012_")) - 1]] for name in names}
    except (ValueError, LookupError) as error:
        raise UserError(f"{source}: the devkit does not label the validation images ({error})") from None


def _read_devkit(source: Path) -> tuple[str, bytes]:
    """Return the content of the devkit's ground truth and of its meta.mat, from its folder or archive."""
    contents: dict[str, bytes] = {}
    for path in map(Path, files_below(source)):
        if path.name in (TRUTH, META):
            contents[path.name] = read_bytes(path, MAX_DEVKIT_BYTES, follow=True)
        elif DEVKIT in path.name and path.name.endswith(ARCHIVES):
            try:
                with open_tar(path) as stream:
                    for tar, member in tar_members(stream):
                        name = member.name.rpartition("/")[2]
                        content = tar.extractfile(member) if name in (TRUTH, META) else None
                        if content is not None and member.size <= MAX_DEVKIT_BYTES:
                            contents[name] = content.read()
            except ARCHIVE_ERRORS as error:
                raise UserError(f"{path} is truncated or damaged ({error})") from None
    if len(contents) < 2:
        raise UserError(
            f"{source}: the validation images are in no folders of classes, so their labels are needed: "
            f"{DEVKIT}.tar.gz or its folder"
        )
    return contents[TRUTH].decode("ascii", "replace"), contents[META]


def _read_wnids(meta: bytes) -> dict[int, str]:
    """Return {number of a class in ILSVRC2012: WordNet id} of meta.mat; inner nodes of its tree are left out."""
    from scipy.io import loadmat

    file: Any = io.BytesIO(meta)
    try:
        synsets: Any = loadmat(file, squeeze_me=True)["synsets"]
        leaves = synsets[synsets["num_children"] == 0]
        return {int(row["ILSVRC2012_ID"]): str(row["WNID"]) for row in leaves}
    except Exception as error:  # damaged files of MATLAB fail in many ways
        raise ValueError(f"{META}: {type(error).__name__}: {error}") from None
