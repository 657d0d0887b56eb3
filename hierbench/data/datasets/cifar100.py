"""CIFAR-100: the last 50 training images of each class are validation (docs/protocols.md, row 23).

Its files are pickles, which can run any code, and the user's copy may not be the official one; so they are read by an
unpickler that builds only arrays and plain values. The same images as PNG files, `train|test/<class>/<file name>`, are
read too: they have lost the official order, so the 50 whose names have the smallest SHA-256 are validation.
"""

import io
import pickle
import pickletools
import re
import zipfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, UnidentifiedImageError
from torchvision.datasets import CIFAR100
from torchvision.datasets.utils import check_integrity

from hierbench.data.datasets.image_finder import files_below
from hierbench.data.image import IMAGE_FORMATS, Images, UnreadableImageError, decode
from hierbench.data.source import ROWS_PER_PIECE, Labels, Piece, Source, SourceRequest, shipped_paths, source_root
from hierbench.utils.archives import ARCHIVE_ERRORS, zip_member
from hierbench.utils.download import Remote
from hierbench.utils.errors import UserError
from hierbench.utils.files import file_digest, read_bytes

CIFAR100_FOLDER = CIFAR100.base_folder
CIFAR100_ARCHIVE = Remote(
    "CIFAR-100", CIFAR100.url, sha256="85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7"
)
MD5S = dict([*CIFAR100.train_list, *CIFAR100.test_list, (CIFAR100.meta["filename"], CIFAR100.meta["md5"])])
VAL_PER_CLASS = 50
MAX_CIFAR_BYTES = 1 << 28  # bytes of a file; the official training file has 155 MB
IMAGE_PATH = re.compile(r"(?:.*/)?(train|test)/([^/]+)/([^/]+\.(?:png|jpe?g))", re.IGNORECASE)
MACOS_FILE = re.compile(r"(^|/)(__MACOSX/|\._)")  # files that macOS adds
LARGEST_PICTURE = 1 << 16  # bytes of a PNG file of 32x32 pixels
CIFAR100_SIZE = (32, 32)
ENCRYPTED = 1  # flag of a member of a zip
VALIDATION_REMARK = "validation is the 50 images of each class whose file names have the smallest SHA-256"
ALLOWED_GLOBALS = {  # all that the official files refer to besides plain containers
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("_codecs", "encode"),
}


def open_source(request: SourceRequest) -> Source:
    """Read CIFAR-100 from the folder that holds `cifar-100-python`, or from its archive; None downloads that.

    A zip, or a folder with `train` and `test`, holds the images as PNG files in a folder for each class.
    """
    path = request.source
    if path is not None and (zipfile.is_zipfile(path) if path.is_file() else (path / "train").is_dir()):
        return _pictures(path)
    root = source_root(
        request, CIFAR100_FOLDER, CIFAR100_ARCHIVE, "cifar100", lambda downloads: not _changed_files(downloads)
    )
    for name in MD5S:
        if not (root / CIFAR100_FOLDER / name).is_file():
            raise UserError(
                f"no file {root / CIFAR100_FOLDER / name}; --source takes the folder that holds {CIFAR100_FOLDER}"
            )
    images, labels = read_split(root / CIFAR100_FOLDER / "train")
    test_images, test_labels = read_split(root / CIFAR100_FOLDER / "test")
    paths = shipped_paths("cifar100")
    if read_pickle(root / CIFAR100_FOLDER / "meta").get("fine_label_names") != list(paths):
        raise UserError(f"{root / CIFAR100_FOLDER}: meta does not list the 100 classes of CIFAR-100")
    changed = _changed_files(root)
    is_val = _last_of_each_class(labels, VAL_PER_CLASS)
    pixels = {"train": images[~is_val], "val": images[is_val], "test": test_images}
    labels_of = {"train": labels[~is_val], "val": labels[is_val], "test": test_labels}

    def pieces() -> Iterator[Piece]:
        for split, rows in pixels.items():
            for start in range(0, len(rows), ROWS_PER_PIECE):
                yield Piece(split, start, partial(np.asarray, rows[start : start + ROWS_PER_PIECE]))

    remarks = [f"{', '.join(changed)} differ from the official CIFAR-100"] if changed else []
    checksums = {name: file_digest(root / CIFAR100_FOLDER / name, follow=True) for name in MD5S}
    return Source(paths, labels_of, CIFAR100_SIZE, pieces, checksums=checksums, remarks=remarks)


def _pictures(path: Path) -> Source:
    """Read a folder or a zip of PNG or JPEG files: a row each, ordered by class and file name."""
    paths = shipped_paths("cifar100")
    index = {name: label for label, name in enumerate(paths)}
    readers: dict[str, dict[str, dict[str, Callable[[], Images]]]] = {
        "train": defaultdict(dict),
        "test": defaultdict(dict),
    }
    for place, load in _iterate_files(path):
        match = IMAGE_PATH.fullmatch(place)
        if match and not MACOS_FILE.search(place):
            split, name, file = match.groups()
            split = split.lower()
            if name not in index:
                raise UserError(f"{path}: {split}/{name[:80]} is not a class of CIFAR-100")
            if file in readers[split][name]:
                raise UserError(f"{path} has {split}/{name}/{file[:80]} twice")
            readers[split][name][file] = load
    rows: dict[str, list[tuple[str, int, Callable[[], Images]]]] = {"train": [], "val": [], "test": []}
    for name, label in index.items():
        files = readers["train"][name]
        if len(files) < 2 or not readers["test"][name]:
            raise UserError(f"{path}: class {name} needs 2 images in train/{name} and 1 in test/{name}, or more")
        by_digest = sorted(files, key=lambda file: sha256(file.encode()).digest())
        held_out = set(by_digest[: min(VAL_PER_CLASS, len(files) // 2)])
        for file in sorted(files):
            rows["val" if file in held_out else "train"].append((file, label, files[file]))
        rows["test"] += [(file, label, load) for file, load in sorted(readers["test"][name].items())]

    def pieces() -> Iterator[Piece]:
        for split, listed in rows.items():
            for row, (_, _, load) in enumerate(listed):
                yield Piece(split, row, load)

    names = list(index)
    ids = dict[str, list[str]]()
    for split, listed in rows.items():
        ids[split] = [file for file, _, _ in listed]
        if len(set(ids[split])) < len(listed):  # the class tells files of one name apart
            ids[split] = [f"{names[label]}/{file}" for file, label, _ in listed]
    return Source(
        paths,
        {split: np.array([label for _, label, _ in listed], dtype=np.int64) for split, listed in rows.items()},
        CIFAR100_SIZE,
        pieces,
        checksums={path.name: file_digest(path, follow=True)} if path.is_file() else {},
        remarks=[VALIDATION_REMARK],
        ids=ids,
        ordered=False,
    )


def _iterate_files(source: Path) -> Iterator[tuple[str, Callable[[], Images]]]:
    """Yield the place of each file of a folder or a zip, and how its image is read."""
    if source.is_dir():
        for path in map(Path, files_below(source)):
            yield path.relative_to(source).as_posix(), partial(_load, partial(_read, path), str(path))
        return
    try:
        archive = zipfile.ZipFile(source)
    except (*ARCHIVE_ERRORS, OSError) as error:
        raise UserError(f"{source.name} is not a complete zip file ({error})") from None
    if any(member.flag_bits & ENCRYPTED for member in archive.infolist()):
        raise UserError(f"{source.name} is encrypted: unpack it, and give the folder")
    for name in archive.namelist():
        yield name, partial(_load, partial(zip_member, archive, name, LARGEST_PICTURE), name)


def _read(path: Path) -> bytes:
    return read_bytes(path, LARGEST_PICTURE, follow=True)


def _load(read: Callable[[], bytes], name: str) -> Images:
    """Return a picture [1, 3, 32, 32]; its size is compared before it is decoded."""
    try:
        content = read()
        with Image.open(io.BytesIO(content), formats=IMAGE_FORMATS) as image:
            width, height = image.size
    except (*ARCHIVE_ERRORS, OSError, Image.DecompressionBombWarning, Image.DecompressionBombError) as error:
        reason = "not a JPEG or PNG file" if isinstance(error, UnidentifiedImageError) else error
        raise UnreadableImageError(f"image {name} cannot be read ({reason})") from None
    if (height, width) != CIFAR100_SIZE:
        raise UnreadableImageError(f"image {name} has {width}x{height} pixels, not 32x32")
    return decode(content, name, CIFAR100_SIZE)


def _changed_files(root: Path) -> list[str]:
    """Return the names of the files that are not the official ones."""
    return [name for name, md5 in MD5S.items() if not check_integrity(root / CIFAR100_FOLDER / name, md5)]


def _last_of_each_class(labels: Labels, num: int) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Mark the last `num` examples of each class, at most half of them where an archive holds fewer."""
    marked = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        marked[rows[len(rows) - min(num, len(rows) // 2) :]] = True
    return marked


def read_split(path: Path) -> tuple[Images, Labels]:
    """Return images [N, 3, 32, 32] and labels [N]."""
    content = read_pickle(path)
    pixels = content.get("data")
    labels = content.get("fine_labels")
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or not isinstance(labels, list):
        raise UserError(f"{path} has no array of images and list of labels: it is not a CIFAR-100 file")
    if not labels or pixels.shape != (len(labels), 3 * 32 * 32):
        raise UserError(f"{path}: images and labels do not fit: {pixels.shape}, {len(labels)} labels")
    if not all(type(label) is int and 0 <= label < 100 for label in labels):
        raise UserError(f"{path} has a label that is not between 0 and 99")
    return pixels.reshape(-1, 3, 32, 32), np.array(labels, dtype=np.int64)


class _ArraysOnly(pickle.Unpickler):
    """Unpickles the content of CIFAR-100's files, and calls no function that a pickle may name."""

    def find_class(self, module: str, name: str) -> Any:
        """Return an array constructor, or refuse."""
        if (module, name) in ALLOWED_GLOBALS:
            return super().find_class(module, name)
        raise UserError(f"refers to {module}.{name}: it is not a CIFAR-100 file and is not read")


def read_pickle(path: Path) -> dict[Any, Any]:
    """Return the dictionary that a file holds."""
    content = read_bytes(path, MAX_CIFAR_BYTES, follow=True)
    try:
        _check_memo(content)
        arrays = _ArraysOnly(io.BytesIO(content), encoding="latin1").load()
    except Exception as error:  # damaged pickles fail in many ways
        damage = f"is truncated or damaged ({type(error).__name__}: {error})"
        raise UserError(f"{path} {error if isinstance(error, UserError) else damage}") from None
    if not isinstance(arrays, dict):
        raise UserError(f"{path} holds a {type(arrays).__name__}: it is not a CIFAR-100 file")
    return arrays


def _check_memo(content: bytes) -> None:
    """Raise unless a pickle numbers its memo one by one; otherwise it can reserve 4 billion places."""
    for number, (opcode, argument, _) in enumerate(pickletools.genops(content)):
        if opcode.name in ("PUT", "BINPUT", "LONG_BINPUT") and not (isinstance(argument, int) and argument <= number):
            raise ValueError("it asks for more memory than it needs")
