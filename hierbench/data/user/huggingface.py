"""Datasets of the Hugging Face package `datasets`, written as image files and the manifest that lists them."""

import io
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from PIL import Image

from hierbench.data.image import UnreadableImageError, reason_of
from hierbench.data.missing import unreadable_images
from hierbench.data.user.opening import LARGEST
from hierbench.data.writer import SPLITS
from hierbench.utils.console import installing
from hierbench.utils.errors import UserError, one_line_of, unknown_name
from hierbench.utils.files import read_bytes, remove_abandoned, sync_folder, temporary_beside

SPLIT_OF = {"training": "train", "valid": "val", "validation": "val", "dev": "val"} | {name: name for name in SPLITS}
SUFFIXES = {"JPEG": ".jpg", "PNG": ".png", "WEBP": ".webp"}  # of formats that are kept
OTHERS = ("BMP", "GIF", "PPM", "TIFF")  # become PNG; `datasets` stores 16-bit pixels as TIFF
VAL = 0.1  # of the training images, where a dataset has test images and none for validation
IN_PYTHON = "change it in Python, save_to_disk(FOLDER), and import FOLDER"


@dataclass(frozen=True)
class Part:
    """A split: what it is in the manifest, "" for shares, its name in the dataset, its images and their classes."""

    split: str
    title: str
    images: Any  # a lazy column of {"bytes": ..., "path": ...}, or None for no image
    labels: list[str]
    places: tuple[Path, ...]  # where image files may lie that the dataset names
    rows: Sequence[int]  # of the images in the dataset's split


def open_dataset(name: str, image: str | None, label: str | None, announce: Callable[[str], None]) -> list[Part]:
    """Load a dataset, downloaded if need be, and read all of its labels.

    Args:
        name: a folder of `save_to_disk`, a folder of files that `load_dataset` takes, or a name on the hub.
        image: column of the images; None for the only one.
        label: column of the labels, names of classes or text; None for the only one.
        announce: called with what a user should know about the splits.

    Raises:
        UserError: `datasets` is not installed, the dataset cannot be loaded, or a column or a label is missing.
    """
    splits = {title: rows for title, rows in _loaded(name).items() if len(rows)}
    if not splits:
        raise UserError(f"{name} has no rows")
    places = _places(name)
    chosen = {SPLIT_OF.get(title.lower(), ""): title for title in reversed(splits)}  # of two, the first
    if chosen.keys() >= set(SPLITS):
        if left := [title for title in splits if title not in [chosen[split] for split in SPLITS]]:
            announce(f"note: left out, because the dataset has train, validation and test: {', '.join(left)}")
        return [_part(splits[chosen[split]], split, chosen[split], image, label, places) for split in SPLITS]
    if chosen.keys() == {"train", "test"} and len(splits) == 2:
        train, test = (
            _part(splits[chosen[split]], split, chosen[split], image, label, places) for split in ("train", "test")
        )
        announce(f"note: no split validation; {VAL:.0%} of each class of {train.title} are drawn for it")
        drawn = _drawn(train.labels)
        others = [row for row in train.rows if row not in drawn]
        return [_some(train, "train", others), _some(train, "val", sorted(drawn), " for validation"), test]
    announce(f"note: no splits train, validation and test ({', '.join(splits)}); shares of all images will be drawn")
    return [_part(rows, "", title, image, label, places) for title, rows in splits.items()]


def _drawn(labels: list[str]) -> set[int]:
    """Return the rows for validation: of each class the share VAL, at least one of two, in the order of SHA-256."""
    rows: dict[str, list[int]] = {}
    for row, label in enumerate(labels):
        rows.setdefault(label, []).append(row)
    drawn = set[int]()
    for own in rows.values():
        own.sort(key=lambda row: sha256(str(row).encode()).digest())
        drawn.update(own[: max(int(VAL * len(own) + 0.5), len(own) > 1)])
    return drawn


def _some(part: Part, split: str, rows: list[int], remark: str = "") -> Part:
    images, labels = (part.images[row] for row in rows), [part.labels[row] for row in rows]
    return Part(split, part.title + remark, images, labels, part.places, rows)


def _loaded(name: str) -> dict[str, Any]:
    try:
        from datasets import DatasetDict, disable_progress_bars, load_dataset, load_from_disk, logging
        from huggingface_hub.utils import logging as hub_logging
    except ImportError:
        raise UserError(f"Hugging Face datasets need an extra; run: {installing('hf')}") from None
    logging.set_verbosity(logging.CRITICAL)  # what matters is in the exception
    hub_logging.set_verbosity_error()  # not a line for each attempt at a connection
    if not sys.stderr.isatty():
        disable_progress_bars()
    saved = any(Path(name, file).is_file() for file in ("dataset_dict.json", "state.json"))
    try:
        found = load_from_disk(name) if saved else load_dataset(name)
    except Exception as error:  # files, the hub and Arrow fail in many ways
        cause = error.__cause__ if type(error).__name__ == "DatasetGenerationError" else None
        raise UserError(f"dataset {name} cannot be loaded ({one_line_of(cause or error)})") from None
    return found if isinstance(found, DatasetDict) else {"all": found}


def _places(name: str) -> tuple[Path, ...]:
    """Return the folders whose files a dataset may name: its own, and where `datasets` keeps downloads."""
    from datasets import config
    from huggingface_hub import constants

    downloads = (
        config.HF_CACHE_HOME,
        config.HF_DATASETS_CACHE,
        config.DOWNLOADED_DATASETS_PATH,
        constants.HF_HUB_CACHE,
    )
    return tuple(Path(place).resolve() for place in (*([name] if Path(name).is_dir() else []), *downloads))


def _part(rows: Any, split: str, title: str, image: str | None, label: str | None, places: tuple[Path, ...]) -> Part:
    from datasets import ClassLabel, Image, Value

    rows = rows.with_format(None)  # a saved dataset may give tensors
    kinds = {kind: [c for c, f in rows.features.items() if isinstance(f, kind)] for kind in (Image, ClassLabel)}
    texts = [c for c, f in rows.features.items() if isinstance(f, Value) and "string" in f.dtype]
    image = _column("image", image, kinds[Image], kinds[Image])
    label = _column("label", label, kinds[ClassLabel] or texts, kinds[ClassLabel] + texts)
    names, labels = getattr(rows.features[label], "names", None), list(rows[label])
    for number, value in enumerate(labels):
        known = value is not None and (value.strip() if names is None else 0 <= value < len(names))
        if not known:
            raise UserError(f"split {title}, row {number:,} has no label ({label} is {value!r}); {IN_PYTHON}")
    labels = [(value if names is None else names[value]).strip() for value in labels]
    images = rows.cast_column(image, Image(decode=False))[image]
    return Part(split, title, images, labels, places, range(len(labels)))


def _column(kind: str, asked: str | None, found: list[str], possible: list[str]) -> str:
    """Return the column that was asked for, or the only one that was found."""
    if asked is not None and asked not in possible:
        raise unknown_name(f"{kind} column", asked, possible)
    if asked is None and len(found) != 1:
        what = f"{len(found)} {kind} columns, {', '.join(found)}; choose one: --{kind} COLUMN"
        raise UserError(f"the dataset has {what}" if found else f"the dataset has no {kind} column; {IN_PYTHON}")
    return asked or found[0]


def write_files(parts: list[Part], folder: Path, progress: Callable[[float], None]) -> Path:
    """Write the images and the manifest into a new folder, which is there once it is complete; return the manifest.

    Raises:
        UserError: images are missing or unreadable; it counts them and names some.
    """
    import pandas as pd

    folder = folder.absolute()
    remove_abandoned(folder.parent, folder.name)
    staging, total, done = temporary_beside(folder), sum(len(part.labels) for part in parts), 0
    index = {label: i for i, label in enumerate(sorted({label for part in parts for label in part.labels}))}
    names, unreadable = list[str](), list[str]()
    try:
        for part in parts:
            for row, cell, label in zip(part.rows, part.images, part.labels, strict=True):
                try:
                    content, suffix = _file_of(cell, part.places)
                except UnreadableImageError as error:
                    unreadable.append(f"image of split {part.title}, row {row:,} cannot be read ({error})")
                else:
                    number = row if part.split else done  # without splits, numbered through
                    names.append(f"{part.split or 'images'}/{index[label]:04}/{number:07}{suffix}")
                    path = staging / names[-1]
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(content)
                done += 1
                progress(done / total)
        if unreadable:
            raise UserError(unreadable_images(unreadable))
        table = pd.DataFrame({"image": names, "label": [label for part in parts for label in part.labels]})
        if parts[0].split:
            table["split"] = [part.split for part in parts for _ in part.labels]
        table.to_csv(staging / "manifest.csv", index=False, lineterminator="\n")
        os.sync()  # once for all files: the folder is not to appear before its content
        staging.rename(folder)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    sync_folder(folder.parent)
    return folder / "manifest.csv"


def _file_of(cell: dict[str, Any] | None, places: tuple[Path, ...]) -> tuple[bytes, str]:
    """Return an image's own bytes and its suffix; PNG where its format is none that hierbench reads."""
    try:
        if cell is None or (cell["bytes"] is None and not cell["path"]):
            raise UnreadableImageError("there is none")
        content = cell["bytes"]
        if content is None:
            path = Path(cell["path"]).resolve()
            if not any(path.is_relative_to(place) for place in places):  # a dataset may name any file of this machine
                raise UnreadableImageError("its file is outside the dataset")
            content = read_bytes(path, LARGEST)
        file = io.BytesIO()
        with Image.open(io.BytesIO(content), formats=(*SUFFIXES, *OTHERS)) as picture:
            kind = "JPEG" if picture.format == "MPO" else picture.format  # a JPEG of several pictures
            if kind in SUFFIXES:
                return content, SUFFIXES[kind]
            (picture.convert("RGB") if picture.mode in ("CMYK", "YCbCr") else picture).save(file, "PNG")
        return file.getvalue(), ".png"
    except Exception as error:  # decoders fail in many ways
        raise UnreadableImageError(reason_of(error, "the format is unknown, or the file is damaged")) from None
