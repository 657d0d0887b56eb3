"""Preparing a dataset: from its source to a whole folder of arrays, or to one clear line and nothing half-made."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from hierbench.data.prepared import Prepared, digest_of, find, folder_of, variant_name
from hierbench.data.source import Labels, Request, Source
from hierbench.data.writer import SPLITS, Outcome, keep_done_rows, write_images
from hierbench.errors import UserError, unknown_name
from hierbench.files import process_is_gone, read_json, sync_folder, write_atomically, write_json, write_text
from hierbench.hierarchy import Hierarchy
from hierbench.job import digest_of as digest_of_content
from hierbench.recipe import Expected, load_recipe

MODULES = {
    "shapes": "hierbench.data.shapes",
    "cifar100": "hierbench.data.cifar100",
    "fgvc": "hierbench.data.fgvc",
    "inat19": "hierbench.data.inat19",
    "tieredimagenet-h": "hierbench.data.tieredimagenet_h",
    "tiny-imagenet": "hierbench.data.tiny_imagenet",
}
SHOWN = 5  # names in an error's line; the file it speaks of has all
DIGEST_SHARE = 0.05  # of the progress: reading everything once more
Progress = Callable[[float], None]  # the share that is done


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

    Raises:
        UserError: nothing to read, or something in it is broken. A dataset that is defined by lists of names keeps
            what was read of it and goes on from there; of others nothing is left.
    """
    if name not in MODULES:
        raise unknown_name("dataset", name, MODULES)
    variant = variant_name(name, jpeg_quality)
    if not force and source is None and (there := find(variant, data_dir)) is not None:
        return there
    request = Request(source, data_dir / "downloads", offline, jpeg_quality)
    target = folder_of(variant, data_dir)
    try:
        with _claimed(target) as (partial, waited):
            if waited and not force and (there := find(variant, data_dir)) is not None:
                return there
            return _prepare(name, request, target, partial, allow_missing, progress or (lambda share: None))
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
    partial, waited = target.with_name(f".{target.name}.partial"), False
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
            if process_is_gone(left.name.rpartition("-")[2]):
                shutil.rmtree(left, ignore_errors=True)
        yield partial, waited
    finally:
        if partial.exists() and os.fstat(lock).st_ino == partial.stat().st_ino and not any(partial.iterdir()):
            partial.rmdir()
        os.close(lock)
        for folder in created:  # a command that came to nothing leaves no empty folders
            with suppress(OSError):
                folder.rmdir()


def _prepare(
    name: str, request: Request, target: Path, partial: Path, allow_missing: bool, progress: Progress
) -> Prepared:
    module = import_module(MODULES[name])
    going_on = False
    try:
        source: Source = module.open_source(request)
        Hierarchy.from_paths(source.paths)  # a broken tree must not be found out hours later
        for split in SPLITS:
            if not len(source.labels[split]):
                raise UserError(f"{name} has no {split} images")
        going_on = bool(source.identity)
        _start(source, Path(str(module.__file__)), partial)
        _check_space(source, partial)
        outcome = _write(source, partial, progress)
        labels = _complete(name, source, outcome, partial, allow_missing)
    except BaseException as error:
        damaged = isinstance(error, UserError) and not isinstance(error, _MissingError)
        if damaged or not going_on:  # what a damaged archive gave so far is not to be trusted either
            _empty(partial)
        raise
    meta = _finish(name, source, labels, partial, progress)
    old = target.with_name(f".{target.name}.old-{os.getpid()}")
    if target.exists():
        target.rename(old)
    partial.rename(target)
    sync_folder(target.parent)
    shutil.rmtree(old, ignore_errors=True)
    return Prepared(target, meta)


class _MissingError(UserError):
    """Images are missing or unreadable; what was read is good."""


def _empty(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()


def _start(source: Source, module: Path, partial: Path) -> None:
    """Go on with what a killed attempt left if it read the same; begin anew if not."""
    labels = {split: rows.tolist() for split, rows in source.labels.items()}
    content = [list(source.paths.values()), labels, source.image_size, source.identity, module.read_text("utf-8")]
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
    there = sum(path.stat().st_blocks * 512 for path in partial.iterdir())
    if shutil.disk_usage(partial).free < needed - there:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _write(source: Source, partial: Path, progress: Progress) -> Outcome:
    total = sum(len(rows) for rows in source.labels.values())
    return write_images(source, partial, lambda written: progress((1.0 - DIGEST_SHARE) * written / total))


def _complete(name: str, source: Source, outcome: Outcome, partial: Path, allow_missing: bool) -> dict[str, Labels]:
    """Return the labels of what is there; refuse if something is missing and that is not allowed.

    Raises:
        UserError: naming the images.
    """
    if not outcome.num_missing:
        return source.labels
    unreadable = list(outcome.unreadable.values())
    absent = [
        f"{split}/{source.names[split][row]}"
        for split, rows in outcome.done.items()
        for row in np.flatnonzero(~rows)
        if source.names and (split, int(row)) not in outcome.unreadable
    ]
    total = sum(len(rows) for rows in source.labels.values())
    problem = "; ".join(filter(None, [_about_absent(absent, total, source, outcome), _about_unreadable(unreadable)]))
    if not source.names:
        raise UserError(problem)
    if not allow_missing:
        listed = partial.parent / f"{name}-missing.txt"
        write_text(listed, "".join(f"{line}\n" for line in [*absent, *unreadable]))
        raise _MissingError(
            f"{problem}; all of them are listed in {listed}; add them, or prepare without them: --allow-missing "
            "(what was read is kept)"
        )
    for split, rows in outcome.done.items():
        if not rows.any():
            raise _MissingError(f"{problem}; no {split} images are left")
    source.remarks.append(problem)
    return keep_done_rows(source, partial, outcome.done)


def _about_absent(absent: list[str], total: int, source: Source, outcome: Outcome) -> str:
    if not absent:
        return ""
    gone = [
        f"{split}/{list(source.paths)[label]}"
        for split, rows in outcome.done.items()
        for label in sorted(set(source.labels[split].tolist()) - set(source.labels[split][rows].tolist()))
    ]
    whole = f"; whole classes: {_some(gone)}" if gone else ""
    return f"{len(absent):,} of {total:,} images are missing: {_some(absent)}{whole}"


def _about_unreadable(errors: list[str]) -> str:
    shown = "; ".join(errors[:SHOWN]) + ("; ..." if len(errors) > SHOWN else "")
    return shown if len(errors) < 2 else f"{len(errors):,} images can not be read: {shown}"


def _some(names: list[str]) -> str:
    return ", ".join(names[:SHOWN]) + (f", ... ({len(names):,})" if len(names) > SHOWN else "")


def _finish(name: str, source: Source, labels: dict[str, Labels], partial: Path, progress: Progress) -> dict[str, Any]:
    """Write labels and meta, and leave nothing else in the folder."""
    for split in SPLITS:
        rows = np.ascontiguousarray(labels[split], dtype=np.int64)
        write_atomically(partial / f"{split}-labels.npy", lambda file, rows=rows: np.save(file, rows))  # type: ignore[misc]
    paths = [list(path) for path in source.paths.values()]
    splits = {split: len(labels[split]) for split in SPLITS}
    tree = Hierarchy.from_paths(source.paths)
    found = Expected(image_size=source.image_size, height=tree.height, level_sizes=tree.level_sizes, **splits)
    difference = _difference(found, load_recipe(name).expected)
    meta = {
        "schema": 1,
        "dataset": name,
        "paths": paths,
        "splits": splits,
        "image_size": list(source.image_size),
        "checksums": source.checksums,
        "remark": "; ".join([difference] * bool(difference) + source.remarks),
        "notice": source.notice,
        "digest": digest_of(partial, paths),
    }
    progress(1.0)
    write_json(partial / "meta.json", meta)
    for left in [*(f"{split}-done" for split in SPLITS), "plan.json"]:
        (partial / left).unlink()
    return meta


def _difference(found: Expected, expected: Expected) -> str:
    """Return how the dataset differs from the whole one that the recipe expects (Table 1 of the paper)."""
    here, whole = found.model_dump(), expected.model_dump()
    odd = [f"{key.replace('_', ' ')} {here[key]} instead of {whole[key]}" for key in here if here[key] != whole[key]]
    return f"not the whole dataset: {', '.join(odd)}" if odd else ""
