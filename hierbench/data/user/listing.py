"""The images of a user's dataset, found in class folders or read from a manifest, in an order of their own."""

import csv
import io
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from hierbench.config.source import SourceSection
from hierbench.data.writer import SPLITS
from hierbench.utils.errors import UserError, unknown_name
from hierbench.utils.files import read_bytes, read_text

if TYPE_CHECKING:
    import pandas as pd

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp")
SHOWN = 100  # missing files that an error names
LARGEST = 1 << 30  # bytes of a Parquet file
SEPARATORS = {  # that tables of others have, and what an error asks about each
    sep: f"is the separator {name}? then save it as .csv with commas"
    for sep, name in ((";", ";"), ("\t", "a tab"), ("|", "|"))
}


class GoneError(UserError):
    """The images, or the tree, are not where the file says; what was prepared from them can still be used."""


@dataclass(frozen=True)
class Photograph:
    """An image file: its path relative to the root, its class, its split if the user chose it, size and time."""

    name: str
    label: str
    split: str
    size: int  # bytes
    time: int  # of the last change, ns


@dataclass(frozen=True)
class Listing:
    """All images of a dataset, sorted by name, how many files of each suffix are none, and links not followed."""

    root: Path
    photographs: list[Photograph] = field(default_factory=list)
    ignored: Counter[str] = field(default_factory=Counter)
    upward: dict[str, None] = field(default_factory=dict)  # paths of links to a folder above

    @property
    def labels(self) -> list[str]:
        """The classes in sorted order."""
        return sorted({photograph.label for photograph in self.photographs})

    @property
    def remarks(self) -> list[str]:
        """What was ignored or left out."""
        kinds = ", ".join(f"{kind} ({num:,})" for kind, num in self.ignored.most_common(5))
        remarks = [f"{self.ignored.total():,} files that are no images are ignored: {kinds}"] * bool(self.ignored)
        return remarks + [f"the link {link} is left out: it leads to a folder above it" for link in self.upward]


@contextmanager
def _named() -> Iterator[None]:
    """Turn the error of a folder or file that may not be read into a UserError that names it."""
    try:
        yield
    except OSError as error:
        raise UserError(
            f"{error.filename or 'a folder of images'} cannot be read ({error.strerror or error})"
        ) from None


@_named()
def list_images(section: SourceSection) -> Listing:
    """Find the images of a dataset.

    Raises:
        GoneError: there is no folder, no manifest, or none of the manifest's images.
        UserError: an empty class folder, a folder where an image is expected, a folder that may not be read, or a
            mistake in the manifest.
    """
    place = Path(section.images)
    if section.is_manifest:
        return _listed(place, with_split=section.splits.kind == "column")
    if not place.is_dir():
        raise GoneError(f"no folder of images {place}")
    found, photographs = Listing(place), list[Photograph]()
    names = _folders_in(place, Listing(place))
    if section.splits.kind == "folders":
        if odd := sorted(set(names) - set(SPLITS)):
            raise unknown_name(f"split folder in {place}:", odd[0], SPLITS)
        if absent := [split for split in SPLITS if split not in names]:
            raise UserError(f'{place} has no folder {", ".join(absent)}; splits = "folders" needs train, val and test')
        for split in SPLITS:
            photographs += _in_classes(split, found)
    elif set(names) <= set(SPLITS) and "train" in names:
        raise UserError(f'{place} holds {", ".join(names)} and no classes; write splits = "folders"')
    else:
        photographs = list(_in_classes("", found))
    return replace(found, photographs=sorted(photographs, key=lambda one: one.name))


@_named()
def guess_splits(images: Path) -> str | None:
    """Return "folders" or "column" where the images are divided already, None where they are not."""
    if images.is_dir():
        names = _folders_in(images, Listing(images))
        return "folders" if names and set(names) <= set(SPLITS) else None
    if images.suffix.lower() == ".csv" and images.is_file():
        try:
            header = read_text(images, "utf-8-sig", follow=True).partition("\n")[0]
        except UnicodeDecodeError as error:
            raise UserError(f"{images} is no CSV file in UTF-8 ({error})") from None
        return "column" if "split" in [cell.strip() for cell in header.split(",")] else None
    if images.suffix.lower() == ".parquet" and images.is_file():
        return "column" if "split" in _table(images).columns else None
    return None


def _folders_in(place: Path, listing: Listing) -> list[str]:
    """Return the names of the folders, hidden ones left out; files are counted as ignored."""
    with os.scandir(place) as found:
        entries = sorted((entry for entry in found if not entry.name.startswith(".")), key=lambda entry: entry.name)
    listing.ignored.update(_kind(entry.name) for entry in entries if not entry.is_dir())
    return [entry.name for entry in entries if entry.is_dir() and not _leads_up(entry, listing)]


def _leads_up(entry: os.DirEntry[str], listing: Listing) -> bool:
    """Whether a folder is a link to one that it lies in, of which it would take all images; such a link is noted."""
    if not entry.is_symlink():
        return False
    target, folder = os.path.realpath(entry.path), Path(entry.path).absolute().parent
    above = [*folder.resolve().parents, *map(os.path.realpath, (folder, *folder.parents))]  # it may be in a link itself
    if is_above := target in map(str, above):
        listing.upward[os.path.relpath(entry.path, listing.root)] = None
    return is_above


def _in_classes(split: str, listing: Listing) -> Iterator[Photograph]:
    """Yield the images in the class folders of a split's folder, "" for the root itself."""
    empty, root = [], listing.root
    classes = _folders_in(root / split, listing)
    for label in classes:
        files = list(_files_below(os.path.join(root, split, label), listing))
        if not files:
            empty.append(f"{split}/{label}".lstrip("/"))
        for path in files:
            yield _photograph(os.path.relpath(path, root), path, label, split)
    if empty or not classes:
        what = f"class folders without an image: {', '.join(empty)}" if empty else "no class folders"
        raise UserError(f"{root / split} has {what}; images end in {', '.join(SUFFIXES)}")


def _files_below(folder: str, listing: Listing) -> Iterator[str]:
    """Yield the image files below a folder at any depth, links followed, each folder once; hidden files are skipped."""
    seen, folders = set[tuple[int, int]](), [folder]
    while folders:
        place = folders.pop()
        status = os.stat(place)
        if (status.st_dev, status.st_ino) in seen:
            continue
        seen.add((status.st_dev, status.st_ino))
        with os.scandir(place) as found:
            entries = [entry for entry in found if not entry.name.startswith(".")]
        for entry in entries:
            is_image = entry.name.lower().endswith(SUFFIXES)
            if is_image and entry.is_dir():
                raise UserError(f"{entry.path} is a folder, not an image")
            if entry.is_dir():
                folders += [] if _leads_up(entry, listing) else [entry.path]
            elif is_image:
                yield entry.path
            else:
                listing.ignored[_kind(entry.name)] += 1


def _kind(name: str) -> str:
    return Path(name).suffix.lower() or "without a suffix"


def _photograph(name: str, path: str, label: str, split: str) -> Photograph:
    try:
        status = os.stat(path)
    except OSError as error:
        raise UserError(f"image {path} cannot be read ({error.strerror or error})") from None
    return Photograph(name, label, split, status.st_size, status.st_mtime_ns)


def _listed(manifest: Path, *, with_split: bool) -> Listing:
    """Read a manifest; its images are relative to its folder."""
    if not manifest.is_file():
        raise GoneError(f"no manifest {manifest}")
    columns = ("image", "label", "split") if with_split else ("image", "label")
    rows = _parquet_rows(manifest, columns) if manifest.suffix.lower() == ".parquet" else _csv_rows(manifest, columns)
    where, photographs, missing = dict[str, str](), list[Photograph](), list[str]()
    for place, (image, label, *split) in rows:
        if not image or not label:
            raise UserError(f"{manifest}, {place}: the {'label' if image else 'image'} is empty")
        if split and split[0] not in SPLITS:
            raise UserError(f"{manifest}, {place}: {unknown_name('split', split[0], SPLITS)}")
        name = os.path.normpath(image)
        if name in where:
            raise UserError(f"{manifest}, {place}: {image} is listed twice, before in {where[name]}")
        where[name] = place
        path = os.path.join(manifest.parent, name)
        if os.path.isdir(path):
            raise UserError(f"{manifest}, {place}: {image} is a folder, not an image")
        if os.path.exists(path):
            photographs.append(_photograph(name, path, label, "".join(split)))
        else:
            missing.append(image)
    if not where:
        raise UserError(f"{manifest} lists no images")
    if missing:
        more = f" and {len(missing) - SHOWN:,} more" if len(missing) > SHOWN else ""
        text = f"{len(missing):,} of {len(where):,} images are missing: {', '.join(missing[:SHOWN])}{more}"
        raise (UserError if photographs else GoneError)(f"{manifest}: {text}")
    return Listing(manifest.parent, sorted(photographs, key=lambda one: one.name))


Rows = Iterable[tuple[str, tuple[str, ...]]]  # (place in the file, the asked columns)


def _csv_rows(manifest: Path, columns: tuple[str, ...]) -> Rows:
    try:
        lines = csv.reader(io.StringIO(read_text(manifest, "utf-8-sig", follow=True), newline=""))
        header = [cell.strip() for cell in next(lines, [])]
        places = _places(manifest, header, columns)
        for line in lines:
            if any(cell.strip() for cell in line):
                if len(line) != len(header):
                    raise UserError(f"{manifest}, line {lines.line_num} has {len(line)} cells, not {len(header)}")
                yield f"line {lines.line_num}", tuple(line[place].strip() for place in places)
    except (csv.Error, UnicodeDecodeError) as error:
        raise UserError(f"{manifest} is no CSV file in UTF-8 ({error})") from None


def _parquet_rows(manifest: Path, columns: tuple[str, ...]) -> Rows:
    table = _table(manifest)
    places = _places(manifest, list(map(str, table.columns)), columns)
    cells = [
        ["" if empty else str(cell) for cell, empty in zip(column, column.isna(), strict=True)]
        for column in (table.iloc[:, place] for place in places)
    ]
    for number, row in enumerate(zip(*cells, strict=True), 1):
        yield f"row {number}", row


def _table(manifest: Path) -> "pd.DataFrame":
    import pandas as pd

    try:
        return pd.read_parquet(io.BytesIO(read_bytes(manifest, LARGEST, follow=True)))
    except ImportError:
        raise UserError(f"{manifest}: reading Parquet needs pyarrow; run: pip install pyarrow") from None
    except Exception as error:  # pyarrow raises errors of its own for a damaged file
        raise UserError(f"{manifest} is no Parquet file ({' '.join(str(error).split())[:200]})") from None


def _places(manifest: Path, header: list[str], columns: tuple[str, ...]) -> list[int]:
    """Return where the columns are; other columns are the user's own."""
    for column in columns:
        if header.count(column) != 1:
            what = "two columns" if column in header else "no column"
            near = "" if column in header else "".join(get_close_matches(column, header, n=1))
            hint = f" (did you mean {near!r}?)" if near else ""
            if separator := next((sep for sep in SEPARATORS if column in ",".join(header).split(sep)), ""):
                raise UserError(f"{manifest} has {what} {column!r}; {SEPARATORS[separator]}")
            raise UserError(f"{manifest} has {what} {column!r}{hint}; its columns: {', '.join(header) or 'none'}")
    return [header.index(column) for column in columns]
