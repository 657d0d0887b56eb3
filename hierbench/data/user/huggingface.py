"""Images of a Hugging Face dataset as the images of a user's: read where they lie, nothing is written or re-encoded."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hierbench.data.image import LARGEST_IMAGE, UnreadableImageError
from hierbench.data.user.photographs import HUB, GoneError, Listing, Photograph, find_split
from hierbench.utils.console import install_command
from hierbench.utils.errors import UserError, error_line
from hierbench.utils.files import read_bytes


def has_own_splits(splits: Iterable[str]) -> bool:
    """Whether a dataset has splits with the usual names of training and test images."""
    return {"train", "test"} <= set(map(find_split, splits))


def list_rows(images: str, *, with_split: bool) -> Listing:
    """List the rows of a dataset; with its own splits, rows of others than train, validation and test are left out.

    Errors: a GoneError where it cannot be loaded, a UserError where a column, a label or a split is missing.
    """
    loaded = load_splits(images)
    if with_split and not has_own_splits(loaded):
        have = ", ".join(loaded)
        raise UserError(f"{images} has no train and test ({have}): write splits = {{val = 0.1, test = 0.2, seed = 0}}")
    photographs = list[Photograph]()
    columns = dict[str, Any]()
    for title, rows in loaded.items():
        split = find_split(title) if with_split else ""
        if split or not with_split:
            columns[title], labels = _columns(rows.with_format(None), f"{images}, split {title}")  # no tensors
            time = int(rows._fingerprint[:16], 16)  # of its content; rows have no time of their own
            photographs += [Photograph(f"{title}/{row:07}", label, split, 0, time) for row, label in enumerate(labels)]

    def read(photograph: Photograph) -> bytes:
        title, _, row = photograph.name.rpartition("/")
        return image_content(columns[title][int(row)], images)

    return Listing(Path(images), photographs, read=read)


def load_splits(images: str) -> dict[str, Any]:
    """Return {title: rows} of a dataset's splits, downloaded if need be."""
    try:
        from datasets import DatasetDict, load_dataset, load_from_disk, logging
    except ImportError:
        raise UserError(f"Hugging Face datasets need an extra; run: {install_command('hf')}") from None
    logging.set_verbosity(logging.CRITICAL)  # the reason is in the exception
    try:
        dataset = load_dataset(images.removeprefix(HUB)) if images.startswith(HUB) else load_from_disk(images)
        dataset = dataset if isinstance(dataset, DatasetDict) else {"all": dataset}
    except Exception as error:  # files, the hub and Arrow fail in many ways
        raise GoneError(f"dataset {images} cannot be loaded ({error_line(error)})") from None
    return {title: rows for title, rows in dataset.items() if len(rows)}


def _columns(rows: Any, where: str) -> tuple[Any, list[str]]:
    """Return the image column of a split, undecoded, and the label of each row."""
    from datasets import ClassLabel, Image, Value

    kinds = {kind: [c for c, f in rows.features.items() if isinstance(f, kind)] for kind in (Image, ClassLabel, Value)}
    texts = [column for column in kinds[Value] if "string" in rows.features[column].dtype]
    columns_by_kind = {"image": kinds[Image], "label": kinds[ClassLabel] or texts}
    for kind, columns in columns_by_kind.items():
        if len(columns) != 1:
            have = f"{len(columns)} {kind} columns {', '.join(columns)}" if columns else f"no {kind} column"
            raise UserError(f"{where} has {have}; choose it in Python and save_to_disk")
    (image,), (label,) = columns_by_kind.values()
    names = getattr(rows.features[label], "names", None)
    labels = list[str]()
    for number, value in enumerate(rows[label]):
        if value is None or not (0 <= value < len(names) if names else value.strip()):
            raise UserError(
                f"{where}, row {number:,} has no label ({label} is {value!r}); leave it out in Python and save_to_disk"
            )
        labels.append((names[value] if names else value).strip())
    return rows.cast_column(image, Image(decode=False))[image], labels


def image_content(cell: dict[str, Any] | None, images: str) -> bytes:
    """Return the bytes of an image, or of the file that the dataset names: in its folder or in the cache, if at all."""
    from datasets import config
    from huggingface_hub import constants

    if cell is None or not (cell["bytes"] or cell["path"]):
        raise UnreadableImageError("there is no image")
    if cell["bytes"]:
        return bytes(cell["bytes"])
    path = Path(cell["path"]).resolve()
    places = (images, config.HF_DATASETS_CACHE, config.DOWNLOADED_DATASETS_PATH, constants.HF_HUB_CACHE)
    if not any(path.is_relative_to(Path(place).resolve()) for place in places):
        raise UnreadableImageError("its file is outside the dataset")
    return read_bytes(path, LARGEST_IMAGE)
