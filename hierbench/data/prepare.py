"""Preparing a dataset: from its source to a complete folder of arrays, resumable where the source allows it."""

import errno
import fcntl
import functools
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from importlib import import_module
from itertools import compress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hierbench.config.recipe import Recipe, load_recipe
from hierbench.config.spec import json_digest as digest_of_content
from hierbench.data.duplicates import describe_duplicates, digest_of_pixels
from hierbench.data.missing_images import leave_out_missing
from hierbench.data.prepared import Prepared, Progress, arrays_digest, find, remember_check
from hierbench.data.source import KeptError, Labels, Source, SourceRequest
from hierbench.data.user import user_dataset
from hierbench.data.writer import ABOVE, SPLITS, images_file, rows_file, write_images
from hierbench.hierarchy.label_tree import Hierarchy
from hierbench.utils.arrays import map_array
from hierbench.utils.errors import UserError
from hierbench.utils.files import (
    file_digest,
    read_json,
    refuse_links,
    remove_made,
    sync_folder,
    write_atomically,
    write_json,
)

PREPARED_FILE = re.compile(
    r"(plan|meta)\.json|(train|val|test|above)-((rows|images|labels)\.npy|done|ids\.json)|\..*\.tmp"
)
DIGEST_SHARE = 0.05  # of the progress: reading everything once more
NEEDS_SOURCE = ("imagenet1k", "inat19", "tieredimagenet-h")  # never downloaded
HAS_NO_SOURCE = ("photos", "shapes")  # come with hierbench


def prepare(
    dataset: str | Recipe,
    data_dir: Path,
    source: Path | None = None,
    progress: Progress = lambda share: None,
    *,
    force: bool = False,
    offline: Path | None = None,
    allow_missing: bool = False,
    jpeg_quality: int = 0,
    announce: Callable[[str], None] = lambda line: None,
) -> Prepared:
    """Prepare a dataset, or return it if it is already prepared.

    Args:
        dataset: a recipe, by its name or a user's file, or read; a built-in one's `data` has a module in
            `hierbench.data.datasets`.
        data_dir: prepared arrays go to `prepared/` below it, downloads to `downloads/`.
        source: the user's own copy; None downloads where the licence allows.
        progress: called with the share that is done, from 0 to 1.
        force: prepare a prepared dataset again.
        offline: see `SourceRequest`.
        allow_missing: leave out images that are missing or unreadable, with a remark, instead of refusing.
        jpeg_quality: see `SourceRequest`.
        announce: called with the data's licence before any image is read, and with notes for the user.

    Raises:
        UserError: nothing to read, or something in it is broken. Where the source has an identity, what was read is
            kept and the next attempt resumes from it; otherwise nothing is left.
    """
    recipe = dataset if isinstance(dataset, Recipe) else load_recipe(dataset)
    name = recipe.data.dataset
    if not data_dir.absolute().parent.is_dir():
        raise UserError(f"--data-dir {data_dir}: there is no folder {data_dir.parent}")
    check_source(recipe, source, offline)
    images = None if recipe.source is None else recipe.source.images or recipe.source.features
    if images and Path(images).is_dir() and data_dir.resolve().is_relative_to(Path(images).resolve()):
        raise UserError(
            f"--data-dir {data_dir} lies in the images of {recipe.dataset}, where nothing is written: give another"
        )
    if allow_missing and name not in NEEDS_SOURCE:
        raise UserError("--allow-missing is for inat19 and tieredimagenet-h, whose images are listed by name")
    variant = recipe.data.model_copy(update={"jpeg_quality": jpeg_quality}).variant

    def ready(say: Callable[[str], None]) -> Prepared | None:
        prepared = find(variant, data_dir)
        return prepared if recipe.source is None else user_dataset.if_current(recipe, prepared, say)

    if not force and source is None and (prepared := ready(announce)) is not None:
        return prepared
    request = SourceRequest(source, data_dir / "downloads", offline, jpeg_quality)
    target, partial = (refuse_links(data_dir, "prepared", folder) for folder in (variant, f".{variant}.partial"))
    try:
        with locked_folder(partial) as waited:
            if source is None and not force and _is_complete(partial):
                _move_into_place(partial, target)
            if (waited or source is None) and not force and (prepared := ready(lambda line: None)) is not None:
                return prepared
            return _prepare(recipe, _open(recipe, request), target, partial, allow_missing, progress, announce)
    except OSError as error:
        if isinstance(error, FileNotFoundError | NotADirectoryError):
            raise UserError(f"preparing {name}: {error.filename or error} does not exist or is not a folder") from None
        why = f"{error.filename or ''}: {error.strerror or error}".lstrip(": ")
        kept = "images that were read are kept" if partial.exists() else "nothing was kept"
        problem = f"the disk is full; {kept} ({why})" if error.errno == errno.ENOSPC else f"{why}; {kept}"
        raise UserError(f"preparing {name} in {target.parent}: {problem}") from None


def check_source(recipe: Recipe, source: Path | None, offline: Path | None = None) -> None:
    """Raise a UserError if the source is not there, or a user's dataset is read from elsewhere than its file says."""
    if source is not None and not source.exists():
        raise UserError(f"--source {source} does not exist")
    if recipe.data.dataset in HAS_NO_SOURCE and source is not None:
        raise UserError(f"{recipe.data.dataset} comes with hierbench: leave out --source")
    if recipe.source is not None and (source is not None or offline is not None):
        raise UserError(
            f"--source and --offline are for built-in datasets; {recipe.dataset} is read where its file says"
        )


def _open(recipe: Recipe, request: SourceRequest) -> Source:
    if recipe.source is not None:
        return user_dataset.open_source(recipe)
    module = import_module(f"hierbench.data.datasets.{recipe.data.dataset.replace('-', '_')}")
    source: Source = module.open_source(request)
    return source


@contextmanager
def locked_folder(partial: Path) -> Iterator[bool]:
    """Lock the folder to build in, and yield whether another process had to be waited for.

    The lock is on the folder itself and ends with the process.
    """
    waited = False
    created = [folder for folder in partial.parents[:2] if not folder.exists()]
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
        os.close(lock)  # the folder was removed by the process that was waited for
    try:
        yield waited
    finally:
        for folder in (partial, *created):  # a command that failed leaves no empty folders
            with suppress(OSError):
                folder.rmdir()
        os.close(lock)


def _prepare(
    recipe: Recipe,
    source: Source,
    target: Path,
    partial: Path,
    allow_missing: bool,
    progress: Progress,
    announce: Callable[[str], None],
) -> Prepared:
    Hierarchy.from_paths(source.paths)  # fails on a broken tree now rather than in hours
    for split in SPLITS:
        if not len(source.labels[split]):
            raise UserError(f"{recipe.data.dataset} has no {split} images")
    for line in [source.notice] * bool(source.notice) + source.messages:
        announce(line)
    _resume_or_clear(source, partial)
    written = not _is_complete(partial)
    if written:
        total = sum(len(rows) * _views(source, split) for split, rows in source.labels.items())
        try:
            if not allow_missing:
                _check_space(source, partial)
            done, unreadable = write_images(source, partial, lambda num: progress((1.0 - DIGEST_SHARE) * num / total))
            listed = target.with_name(f"{recipe.data.dataset}-missing.txt")
            labels = leave_out_missing(source, done, unreadable, partial, listed, allow_missing)
            listed.unlink(missing_ok=True)
            _complete(recipe, source, labels, done, partial)
        except BaseException as error:
            bad = isinstance(error, UserError) and not isinstance(error, KeptError)
            marks = (np.fromfile(path, dtype=np.bool_) for path in partial.glob("*-done"))
            if bad or not source.identity or not any(rows.any() for rows in marks):
                remove_made(partial, PREPARED_FILE, keep=True)
            raise
    progress(1.0)
    _move_into_place(partial, target)
    prepared = Prepared(target, read_json(target / "meta.json"))
    if written:
        remember_check(prepared)  # everything was read for the digest a moment ago
    return prepared


def _views(source: Source, split: str) -> int:
    return 1 if source.vectors is None else source.shape(split)[0]


def _resume_or_clear(source: Source, partial: Path) -> None:
    """Keep the files of a killed attempt if it read the same source with the same code; remove them otherwise."""
    labels = {split: rows.tolist() for split, rows in source.labels.items()}
    code = [path.read_text("utf-8") for path in sorted(Path(__file__).parent.rglob("*.py"))]
    content = [list(source.paths.values()), labels, source.image_size, source.identity, code]
    content += [] if source.vectors is None else [asdict(source.vectors)]
    plan = {"identity": digest_of_content(content)}
    with suppress(OSError, ValueError):
        if source.identity and read_json(partial / "plan.json") == plan:
            return
    remove_made(partial, PREPARED_FILE, keep=True)
    if source.identity:
        write_json(partial / "plan.json", plan)


def _check_space(source: Source, partial: Path) -> None:
    needed = source.num_bytes()
    num_written = sum(path.stat().st_blocks * 512 for path in partial.glob("*-rows.npy"))
    free = shutil.disk_usage(partial).free
    if free < needed - num_written:
        gib = 1 << 30
        raise OSError(errno.ENOSPC, f"{(needed - num_written) / gib:.1f} GiB are needed, {free / gib:.1f} GiB are free")


def _complete(
    recipe: Recipe,
    source: Source,
    labels: dict[str, Labels],
    done: dict[str, NDArray[np.bool_]],
    partial: Path,
) -> None:
    """Write labels and, when all else is on disk, meta.json: a folder that has it is complete."""
    rows = {split: np.ascontiguousarray(labels[split], dtype=np.int64) for split in labels}
    for split in labels:
        write_atomically(partial / f"{split}-labels.npy", functools.partial(np.save, arr=rows[split]))
    ids = source.ids or source.names
    for split, listed in ids.items():  # without the rows that are left out
        write_json(partial / f"{split}-ids.json", list(compress(listed, done[split])))
    paths = [list(path) for path in source.paths.values()]
    vectors = None if source.vectors is None else asdict(source.vectors)
    splits = {split: len(labels[split]) for split in labels}
    num_above = int((rows["train"] >= len(paths)).sum())
    odd: list[str] = []
    if recipe.source is None:
        sizes = user_dataset.dataset_sizes(source.paths, labels, source.image_size).model_dump()
        full_sizes = recipe.expected.model_dump()  # Table 1 of the paper
        odd = [
            f"{key.replace('_', ' ')} {sizes[key]} instead of {full_sizes[key]}"
            for key in sizes
            if sizes[key] != full_sizes[key]
        ]
    late_remarks = source.late_remarks()
    if recipe.source is not None and vectors is None:
        images = {split: map_array(images_file(partial, split)) for split in SPLITS}
        names = {split: list(compress(ids[split], done[split])) for split in SPLITS}
        digests = {split: map(digest_of_pixels, pixels) for split, pixels in images.items()}
        late_remarks += describe_duplicates(digests, {split: rows[split] for split in SPLITS}, names)
    meta = {
        "schema": 1,
        "dataset": recipe.data.dataset,
        "paths": paths,
        "splits": splits,
        **({} if source.image_size is None else {"image_size": list(source.image_size)}),
        **({} if vectors is None else {"vectors": vectors}),
        "checksums": source.checksums,
        "ids": {split: file_digest(partial / f"{split}-ids.json") for split in ids},
        "remark": "; ".join([f"not the whole dataset: {', '.join(odd)}"] * bool(odd) + source.remarks + late_remarks),
        "notice": source.notice,
        **({"source": source.state} if source.state else {}),
        **({} if source.ordered else {"ordered": False}),
        **({"labels_above": num_above} if num_above else {}),
        "digest": arrays_digest(
            paths,
            lambda split: (map_array(images_file(partial, split)), rows[split]),
            splits,
            vectors=vectors,
        ),
    }
    write_json(partial / "meta.json", meta)


def _is_complete(partial: Path) -> bool:
    return (partial / "meta.json").exists()


def _move_into_place(partial: Path, target: Path) -> None:
    """Move a complete dataset to its place, meta.json last; killed at any point, it can be called again."""
    target.mkdir(exist_ok=True)
    unit = "features" if "vectors" in read_json(partial / "meta.json") else "images"
    (target / "meta.json").unlink(missing_ok=True)
    sync_folder(target)
    for split in (*SPLITS, ABOVE):
        rows = rows_file(partial, split)
        images = partial / f"{split}-images.npy"
        if images.exists():  # a copy without the rows that are left out
            rows.unlink(missing_ok=True)
        for path, part in ((rows, unit), (images, unit), (partial / f"{split}-labels.npy", "labels")):
            if path.exists():
                path.replace(target / f"{split}-{part}.npy")
        ids = partial / f"{split}-ids.json"
        if ids.exists():
            ids.replace(target / ids.name)
    sync_folder(target)
    (partial / "meta.json").replace(target / "meta.json")
    sync_folder(target)
    remove_made(partial, PREPARED_FILE, keep=True)
