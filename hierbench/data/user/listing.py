"""The images of a user's dataset, found in class folders or read from a manifest, and divided into splits."""

import io
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from hierbench.config.recipe_source import SourceSection
from hierbench.data.user.photographs import HUB, GoneError, Listing, Photograph, find_split, with_validation
from hierbench.data.writer import SPLITS
from hierbench.utils.errors import UserError, nearest, unknown_name
from hierbench.utils.files import read_bytes

if TYPE_CHECKING:
    import pandas as pd

SAVED = ("dataset_dict.json", "state.json")  # of a folder that `save_to_disk` of its `datasets` wrote
SUFFIXES = (".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".avif")
MAX_NAMED_FILES = 100  # missing files that an error names
MAX_MANIFEST_BYTES = 1 << 30  # bytes of a manifest
OTHER_SEPARATORS = {  # that other tables use, and the question of the error for each
    sep: f"is the separator {name}? then save it as .csv with commas"
    for sep, name in ((";", ";"), ("\t", "a tab"), ("|", "|"))
}


@contextmanager
def _name_unreadable() -> Iterator[None]:
    """Turn the error of a folder or file that may not be read into a UserError that names it."""
    try:
        yield
    except OSError as error:
        raise UserError(
            f"{error.filename or 'a folder of images'} cannot be read ({error.strerror or error})"
        ) from None


def is_hugging_face(images: str) -> bool:
    """Whether images are `hf:NAME`, a dataset on the hub, or a folder written by `save_to_disk`."""
    return images.startswith(HUB) or any(Path(images, file).is_file() for file in SAVED)


def list_images(section: SourceSection) -> Listing:
    """Find the images of a dataset; where its own splits have none for validation, they are drawn from training.

    Raises:
        GoneError: the folder, the manifest, or all of the manifest's images are missing.
        UserError: an empty class folder, a folder where an image is expected, a folder that may not be read, or a
            mistake in the manifest.
    """
    listing = _find_images(section)
    if section.splits.kind != "shares" and all(photograph.split != "val" for photograph in listing.photographs):
        listing.photographs[:] = with_validation(listing.photographs)
        num = sum(photograph.split == "val" for photograph in listing.photographs)
        listing.notes.append(f"no validation images: a tenth of each class of train is taken, {num:,} images")
    return listing


@_name_unreadable()
def _find_images(section: SourceSection) -> Listing:
    place = Path(section.images)
    with_split = section.splits.kind == "column"
    if is_hugging_face(section.images):
        from hierbench.data.user.huggingface import list_rows

        return list_rows(section.images, with_split=with_split)
    if section.is_manifest:
        return _read_manifest(place, section.group, with_split=with_split)
    if not place.is_dir():
        raise GoneError(f"no folder of images {place}")
    if with_split:
        raise UserError(f'splits = "column" needs a manifest, and images = {section.images!r} is not .csv or .parquet')
    listing = Listing(place)
    names = _folders_in(place, Listing(place))
    if section.splits.kind == "folders":
        _add_splits(names, listing)
    elif _are_splits(names):
        raise UserError(f'{place} holds {", ".join(names)} and no classes; write splits = "folders"')
    else:
        _add_classes("", "", listing)
        alike = [name for name in names if find_split(name)]
        if alike:
            listing.notes.append(f"class folders with names of splits: {', '.join(alike)}; all folders are classes")
    listing.photographs.sort(key=lambda photograph: photograph.name)
    if section.group:
        listing.photographs[:] = _grouped_by_folder(listing.photographs, section)
    return listing


def _grouped_by_folder(photographs: Sequence[Photograph], section: SourceSection) -> list[Photograph]:
    """Return images with the folder between class and image as their group, as in CLASS/SPECIMEN/1.jpg."""
    if section.group != "folder":
        raise UserError(f'group = "{section.group}" names a column of a manifest; of folders it is "folder"')
    depth = 2 if section.splits.kind == "folders" else 1
    groups = [Path(image.name).parts[depth:-1] for image in photographs]
    return [replace(image, group="/".join(group)) for image, group in zip(photographs, groups, strict=True)]


@_name_unreadable()
def guess_splits(images: Path) -> str | None:
    """Return "folders" or "column" where the images are divided already, None where they are not."""
    if is_hugging_face(str(images)):
        from hierbench.data.user.huggingface import has_own_splits, load_splits

        return "column" if has_own_splits(load_splits(str(images))) else None
    if images.is_dir():
        names = _folders_in(images, Listing(images))
        return "folders" if _are_splits(names) else None
    if images.suffix.lower() in (".csv", ".parquet") and images.is_file():
        return "column" if "split" in _table(images).columns else None
    return None


def _are_splits(names: Sequence[str]) -> bool:
    """Whether folders are splits, by the usual names of training, validation and test."""
    splits = set(map(find_split, names))
    return "" not in splits and "train" in splits and len(splits) > 1


def _add_splits(names: Sequence[str], listing: Listing) -> None:
    """Add the images in the folders of splits. Without test images, those for validation are taken for them."""
    place = listing.root
    odd = sorted(name for name in names if not find_split(name))
    if odd:
        raise unknown_name(f"split folder in {place}:", odd[0], SPLITS)
    folder_of = {find_split(name): name for name in names}
    twice = sorted(set(names) - set(folder_of.values()))
    if twice:
        raise UserError(f"{place} has two folders of one split, {twice[0]} and {folder_of[find_split(twice[0])]}")
    if not _are_splits(names):
        raise UserError(
            f'{place} needs folders train, and val or test, for splits = "folders"; it has {", ".join(names)}'
        )
    if "test" not in folder_of:
        folder_of["test"] = folder_of.pop("val")
        listing.notes.append(f"no folder of test images: those of {folder_of['test']} are the test images")
    for split, folder in folder_of.items():
        _add_classes(split, folder, listing)


def _folders_in(place: Path, listing: Listing) -> list[str]:
    """Return the names of the folders, hidden ones left out; files are counted as ignored."""
    with os.scandir(place) as scan:
        entries = sorted((entry for entry in scan if not entry.name.startswith(".")), key=lambda entry: entry.name)
    listing.ignored.update(_kind(entry.name) for entry in entries if not entry.is_dir())
    return [entry.name for entry in entries if entry.is_dir() and not _links_to_parent(entry, listing)]


def _links_to_parent(entry: os.DirEntry[str], listing: Listing) -> bool:
    """Whether a folder is a self-referencing link, which would list all images again; such a link is noted."""
    if not entry.is_symlink():
        return False
    target = os.path.realpath(entry.path)
    folder = Path(entry.path).absolute().parent
    above = [*folder.resolve().parents, *map(os.path.realpath, (folder, *folder.parents))]  # it may be in a link itself
    is_above = target in map(str, above)
    if is_above:
        listing.upward[os.path.relpath(entry.path, listing.root)] = None
    return is_above


def _kind(name: str) -> str:
    return Path(name).suffix.lower() or "without a suffix"


def _add_classes(split: str, folder: str, listing: Listing) -> None:
    """Add the images in the class folders of a split's folder, "" for the root itself."""
    empty = []
    root = listing.root
    classes = _folders_in(root / folder, listing)
    for label in classes:
        files = list(_files_below(os.path.join(root, folder, label), listing))
        if not files:
            empty.append(f"{folder}/{label}".lstrip("/"))
        listing.photographs.extend(_read_photograph(os.path.relpath(path, root), path, label, split) for path in files)
    if empty or not classes:
        problem = f"class folders without an image: {', '.join(empty)}" if empty else "no class folders"
        raise UserError(f"{root / folder} has {problem}; images end in {', '.join(SUFFIXES)}")


def _files_below(folder: str, listing: Listing) -> Iterator[str]:
    """Yield the image files below a folder at any depth, links followed, each folder once; hidden files are skipped."""
    seen = set[str]()
    folders = [folder]
    while folders:
        place = folders.pop()
        real = os.path.realpath(place)
        if real in seen:
            continue
        seen.add(real)
        with os.scandir(place) as scan:
            entries = [entry for entry in scan if not entry.name.startswith(".")]
        for entry in entries:
            is_image = entry.name.lower().endswith(SUFFIXES)
            if is_image and entry.is_dir():
                raise UserError(f"{entry.path} is a folder, not an image")
            if entry.is_dir():
                folders += [] if _links_to_parent(entry, listing) else [entry.path]
            elif is_image:
                yield entry.path
            else:
                listing.ignored[_kind(entry.name)] += 1


def _read_photograph(name: str, path: str, label: str, split: str, group: str = "") -> Photograph:
    status = os.stat(path)
    return Photograph(name, label, split, status.st_size, status.st_mtime_ns, group)


def _read_manifest(manifest: Path, group: str, *, with_split: bool) -> Listing:
    """Read a manifest; its images are relative to its folder."""
    if not manifest.is_file():
        raise GoneError(f"no manifest {manifest}")
    columns = ["image", "label", *(["split"] if with_split else []), *([group] if group else [])]
    table = _table(manifest)
    header = list(table.columns)
    for column in columns:
        if header.count(column) != 1:
            problem = "two columns" if column in header else "no column"
            near = "" if column in header else nearest(column, header)
            hint = f" (did you mean {near!r}?)" if near else ""
            separator = next((sep for sep in OTHER_SEPARATORS if column in ",".join(header).split(sep)), "")
            if separator:
                raise UserError(f"{manifest} has {problem} {column!r}; {OTHER_SEPARATORS[separator]}")
            raise UserError(f"{manifest} has {problem} {column!r}{hint}; its columns: {', '.join(header) or 'none'}")
    row_of = dict[str, int]()
    photographs = list[Photograph]()
    missing = list[str]()
    for row, (image, label, *others) in enumerate(table[columns].itertuples(index=False), 1):
        split = others[:with_split]
        place = f"{manifest}, row {row}"
        if not image or not label:
            raise UserError(f"{place}: the {'label' if image else 'image'} is empty")
        if split and split[0] not in SPLITS:
            raise UserError(f"{place}: {unknown_name('split', split[0], SPLITS)}")
        name = os.path.normpath(image)
        if name in row_of:
            raise UserError(f"{place}: {image} is listed twice, before in row {row_of[name]}")
        row_of[name] = row
        path = os.path.join(manifest.parent, name)
        if os.path.isdir(path):
            raise UserError(f"{place}: {image} is a folder, not an image")
        if os.path.exists(path):
            photographs.append(_read_photograph(name, path, label, "".join(split), others[-1] if group else ""))
        else:
            missing.append(image)
    if not row_of:
        raise UserError(f"{manifest} lists no images")
    if missing:
        more = f" and {len(missing) - MAX_NAMED_FILES:,} more" if len(missing) > MAX_NAMED_FILES else ""
        text = f"{len(missing):,} of {len(row_of):,} images are missing: {', '.join(missing[:MAX_NAMED_FILES])}{more}"
        raise (UserError if photographs else GoneError)(f"{manifest}: {text}")
    return Listing(manifest.parent, sorted(photographs, key=lambda photograph: photograph.name))


def _table(manifest: Path) -> "pd.DataFrame":
    """Return a manifest as text, stripped, with "" for an empty cell; two columns may have one name."""
    import pandas as pd

    content = io.BytesIO(read_bytes(manifest, MAX_MANIFEST_BYTES, follow=True))
    is_csv = manifest.suffix.lower() != ".parquet"
    try:
        if is_csv:  # pandas gives a second column of one name another one
            table = pd.read_csv(content, header=None, dtype=str, na_filter=False, encoding="utf-8-sig")
            table = table[1:].set_axis(table.iloc[0].tolist(), axis=1)
        else:
            table = pd.read_parquet(content)
            table = table.astype(object).where(table.notna(), "")
        table.columns = [str(name).strip() for name in table.columns]
        table = table.map(lambda cell: str(cell).strip())
        return table[(table != "").any(axis=1)]
    except Exception as error:  # pandas and pyarrow raise errors of their own for a damaged file
        header = content.getvalue()[: 1 << 16].decode("utf-8-sig", "replace").partition("\n")[0]
        separator = next((sep for sep in OTHER_SEPARATORS if "image" in map(str.strip, header.split(sep))), "")
        if separator:
            raise UserError(f"{manifest} has no column 'image'; {OTHER_SEPARATORS[separator]}") from None
        kind = "CSV file in UTF-8" if is_csv else "Parquet file"
        raise UserError(f"{manifest} is not a {kind} ({' '.join(str(error).split())[:200]})") from None
