"""Preparing a dataset: from its source to a whole folder of arrays, or to one clear line and nothing half-made."""

from __future__ import annotations

import errno
import fcntl
import functools
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path

import numpy as np

from hierbench.config.recipe import Expected, load_recipe
from hierbench.config.spec import digest_of as digest_of_content
from hierbench.data.missing import complete
from hierbench.data.prepared import (
    CHECKED,
    Prepared,
    Progress,
    digest_of,
    find,
    folder_of,
    remember_check,
    variant_name,
)
from hierbench.data.source import DamagedArchiveError, KeptError, Labels, Request, Source
from hierbench.data.writer import SPLITS, rows_file, write_images
from hierbench.hierarchy.tree import Hierarchy
from hierbench.utils.errors import UserError, unknown_name
from hierbench.utils.files import (
    process_is_gone,
    read_json,
    refuse_links,
    remove_made,
    sync_folder,
    write_atomically,
    write_json,
)

MODULES = {
    "shapes": "hierbench.data.datasets.shapes",
    "cifar100": "hierbench.data.datasets.cifar100",
    "fgvc": "hierbench.data.datasets.fgvc",
    "inat19": "hierbench.data.datasets.inat19",
    "tieredimagenet-h": "hierbench.data.datasets.tieredimagenet_h",
    "tiny-imagenet": "hierbench.data.datasets.tiny_imagenet",
}
MADE = re.compile(rf"(plan|meta|{CHECKED[:-5]})\.json|(train|val|test)-((rows|images|labels)\.npy|done)|\..*\.tmp")
DIGEST_SHARE = 0.05  # of the progress: reading everything once more
NEEDS_SOURCE = ("inat19", "tieredimagenet-h")  # never downloaded by itself
Announce = Callable[[str], None]


def prepare(
    name: str,
    data_dir: Path,
    source: Path | None = None,
    progress: Progress | None = None,
    *,
    force: bool = False,
    offline: Path | None = None,
    allow_missing: bool = False,
    jpeg_quality: int = 0,
    announce: Announce | None = None,
) -> Prepared:
    """Prepare a dataset, or return what is there.

    Args:
        name: of the dataset.
        data_dir: prepared arrays go to `prepared/` below it, downloads to `downloads/`.
        source: the user's own copy; None downloads where the licence allows.
        progress: called with the share that is done, from 0 to 1.
        force: prepare again although the dataset is there.
        offline: see `Request`.
        allow_missing: leave out images that are missing or unreadable, and say so, instead of refusing.
        jpeg_quality: see `Request`.
        announce: called with whose the data is and on what terms, before it is read.

    Raises:
        UserError: nothing to read, or something in it is broken. A dataset that names its source keeps what was read
            of it and goes on from there; of others nothing is left.
    """
    if name not in MODULES:
        raise unknown_name("dataset", name, MODULES)
    if allow_missing and name not in NEEDS_SOURCE:
        raise UserError(f"--allow-missing is for {' and '.join(NEEDS_SOURCE)}, whose images are listed by name")
    variant = variant_name(name, jpeg_quality)
    if not force and source is None and (there := find(variant, data_dir)) is not None:
        return there
    request = Request(source, data_dir / "downloads", offline, jpeg_quality)
    target = refuse_links(data_dir, "prepared", folder_of(variant, data_dir).name)
    try:
        with _claimed(target) as (partial, waited):
            if source is None and not force and _is_whole(partial):
                _adopt(partial, target)
            if (waited or source is None) and not force and (there := find(variant, data_dir)) is not None:
                return there
            quiet = (progress or (lambda share: None), announce or (lambda line: None))
            return _prepare(name, request, target, partial, allow_missing, *quiet)
    except OSError as error:
        if isinstance(error, FileNotFoundError | NotADirectoryError):
            raise UserError(f"preparing {name}: {error.filename or error} does not exist or is no folder") from None
        full = error.errno == errno.ENOSPC
        reason = "the disk is full" if full else f"{error.filename or ''}: {error.strerror or error}".lstrip(": ")
        kept = "what was read is kept" if target.with_name(f".{variant}.partial").exists() else "nothing was kept"
        raise UserError(f"preparing {name} in {target.parent}: {reason}; {kept}") from None


@contextmanager
def _claimed(target: Path) -> Iterator[tuple[Path, bool]]:
    """Yield the folder to build in, held by this process alone, and whether another one had to be waited for.

    The lock is on the folder itself and goes with the process, however it ends.
    """
    partial, waited = refuse_links(target.parent, f".{target.name}.partial"), False
    created = [folder for folder in (target.parent, target.parent.parent) if not folder.exists()]
    while True:
        partial.mkdir(parents=True, exist_ok=True)
        lock = os.open(partial, os.O_RDONLY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waited = True
            fcntl.flock(lock, fcntl.LOCK_EX)
        if partial.exists() and os.fstat(lock).st_ino == partial.stat().st_ino:
            break
        os.close(lock)  # what was waited for has become the prepared dataset, or is gone
    try:
        for left in target.parent.glob(f".{target.name}.old-*"):
            if left.is_symlink():
                continue
            if not target.exists() and not _is_whole(partial):
                left.rename(target)  # killed between the two renames of `_adopt`
            elif process_is_gone(left.name.rpartition("-")[2]):
                remove_made(left, MADE)
        yield partial, waited
    finally:
        if partial.exists() and os.fstat(lock).st_ino == partial.stat().st_ino and not any(partial.iterdir()):
            partial.rmdir()
        os.close(lock)
        for folder in created:  # a command that came to nothing leaves no empty folders
            with suppress(OSError):
                folder.rmdir()


def _prepare(
    name: str,
    request: Request,
    target: Path,
    partial: Path,
    allow_missing: bool,
    progress: Progress,
    announce: Announce,
) -> Prepared:
    source: Source = import_module(MODULES[name]).open_source(request)
    Hierarchy.from_paths(source.paths)  # a broken tree must not be found out hours later
    for split in SPLITS:
        if not len(source.labels[split]):
            raise UserError(f"{name} has no {split} images")
    if source.notice:
        announce(source.notice)
    _start(source, partial)
    written = not _is_whole(partial)
    if written:
        try:
            if not allow_missing:
                _check_space(source, partial)
            total = sum(len(rows) for rows in source.labels.values())
            outcome = write_images(source, partial, lambda done: progress((1.0 - DIGEST_SHARE) * done / total))
            labels = complete(source, outcome, partial, target.parent / f"{name}-missing.txt", allow_missing)
            _finish(name, source, labels, partial)
        except BaseException as error:
            good = not isinstance(error, UserError) or isinstance(error, KeptError | DamagedArchiveError)
            if not source.identity or not good or not _holds_rows(partial):
                _empty(partial)
            raise
    progress(1.0)
    _adopt(partial, target)
    (target.parent / f"{name}-missing.txt").unlink(missing_ok=True)
    prepared = Prepared(target, read_json(target / "meta.json"))
    if written:
        remember_check(prepared)  # it was read for the digest a moment ago
    return prepared


def _holds_rows(partial: Path) -> bool:
    """Whether anything was read that the next attempt can go on with."""
    marks = [partial / f"{split}-done" for split in SPLITS]
    return any(path.exists() and np.fromfile(path, dtype=np.bool_).any() for path in marks)


def _empty(folder: Path) -> None:
    """Remove what was prepared; the folder stays, as it is this process' lock."""
    remove_made(folder, MADE, keep=True)


def _start(source: Source, partial: Path) -> None:
    """Go on with what a killed attempt left if it read the same; begin anew if not."""
    labels = {split: rows.tolist() for split, rows in source.labels.items()}
    code = [path.read_text("utf-8") for path in sorted(Path(__file__).parent.rglob("*.py"))]
    content = [list(source.paths.values()), labels, source.image_size, source.identity, code]
    plan = {"identity": digest_of_content(content) if source.identity else ""}
    try:
        same = bool(source.identity) and read_json(partial / "plan.json") == plan
    except (OSError, ValueError):
        same = False
    if not same:
        _empty(partial)
        write_json(partial / "plan.json", plan)


def _check_space(source: Source, partial: Path) -> None:
    height, width = source.image_size
    needed = sum(len(rows) for rows in source.labels.values()) * 3 * height * width
    there = sum(
        rows_file(partial, split).stat().st_blocks * 512 for split in SPLITS if rows_file(partial, split).exists()
    )
    free = shutil.disk_usage(partial).free
    if free < needed - there:
        gib = 1 << 30
        kept = "what was read is kept" if there else "nothing was kept"
        what = f"{(needed - there) / gib:.1f} GiB are needed, {free / gib:.1f} GiB are free"
        raise KeptError(f"preparing in {partial.parent}: the disk is full; {kept} ({what})")


def _finish(name: str, source: Source, labels: dict[str, Labels], partial: Path) -> None:
    """Write labels and, when all else is on the disk, meta.json: a folder that has it is whole."""
    for split in SPLITS:
        rows = np.ascontiguousarray(labels[split], dtype=np.int64)
        write_atomically(partial / f"{split}-labels.npy", functools.partial(np.save, arr=rows))
    paths = [list(path) for path in source.paths.values()]
    splits = {split: len(labels[split]) for split in SPLITS}
    tree = Hierarchy.from_paths(source.paths)
    found = Expected(image_size=source.image_size, height=tree.height, level_sizes=tree.level_sizes, **splits)
    difference = _difference(found, load_recipe(name).expected)
    short = {split: len(labels[split]) < len(source.labels[split]) for split in SPLITS}
    files = {split: partial / f"{split}-images.npy" if short[split] else rows_file(partial, split) for split in SPLITS}
    meta = {
        "schema": 1,
        "dataset": name,
        "paths": paths,
        "splits": splits,
        "image_size": list(source.image_size),
        "checksums": source.checksums,
        "remark": "; ".join([difference] * bool(difference) + source.remarks),
        "notice": source.notice,
        "digest": digest_of(partial, paths, files),
    }
    write_json(partial / "meta.json", meta)


def _is_whole(partial: Path) -> bool:
    return (partial / "meta.json").exists()


def _adopt(partial: Path, target: Path) -> None:
    """Make a whole folder the prepared dataset; killed at any point, it can be called again."""
    for split in SPLITS:
        rows = rows_file(partial, split)
        if (partial / f"{split}-images.npy").exists():
            rows.unlink(missing_ok=True)
        elif rows.exists():
            rows.rename(partial / f"{split}-images.npy")
        (partial / f"{split}-done").unlink(missing_ok=True)
    sync_folder(partial)
    old = target.with_name(f".{target.name}.old-{os.getpid()}")
    if target.exists():
        target.rename(old)
    partial.rename(target)
    sync_folder(target.parent)
    (target / "plan.json").unlink(missing_ok=True)
    remove_made(old, MADE)


def _difference(found: Expected, expected: Expected) -> str:
    """Return how the dataset differs from the whole one that the recipe expects (Table 1 of the paper)."""
    here, whole = found.model_dump(), expected.model_dump()
    odd = [f"{key.replace('_', ' ')} {here[key]} instead of {whole[key]}" for key in here if here[key] != whole[key]]
    return f"not the whole dataset: {', '.join(odd)}" if odd else ""
