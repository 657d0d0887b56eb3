"""Images that are missing or unreadable: listed and refused, or left out where the user allows it."""

import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hierbench.data.source import KeptError, Labels, Source
from hierbench.data.writer import ABOVE, rows_file, write_header
from hierbench.utils.errors import UserError
from hierbench.utils.files import write_text
from hierbench.utils.text import counted

MAX_NAMED_IMAGES = 5  # names in an error; the list that it refers to has all
MAX_NAMES = 100  # names in an error without a list
SKIP = "; skip_broken = true in the file goes on without them (hierbench data new --skip-broken)"
ROWS_PER_COPY = 256  # rows that are copied at a time


def leave_out_missing(
    source: Source,
    done: dict[str, NDArray[np.bool_]],
    unreadable: dict[tuple[str, int], str],
    partial: Path,
    listed: Path,
    allow_missing: bool,
) -> dict[str, Labels]:
    """Return the labels of each split without those of missing images; `images_file` then holds their images.

    `done` and `unreadable` come from `write_images`. The names of all missing images are written to `listed`.

    Raises:
        UserError: images are missing and `allow_missing` is False; the error names some.
    """
    for split in done:
        (partial / f"{split}-images.npy").unlink(missing_ok=True)  # of a killed attempt, which may have had fewer
    if all(rows.all() for rows in done.values()):
        return source.labels
    if not source.names and not source.skip_broken:
        raise UserError(unreadable_images(list(unreadable.values()), MAX_NAMES) + SKIP * bool(source.ids))
    names = source.names or source.ids
    absent = [
        f"{split}/{names[split][row]}"
        for split, rows in done.items()
        for row in np.flatnonzero(~rows).tolist()
        if (split, row) not in unreadable
    ]
    problem = _problem(source, done, absent, list(unreadable.values()))
    if source.skip_broken:  # by names below the dataset's folder: a table quotes them
        broken = [names[split][row] for split, row in unreadable]
        problem = f"{counted(len(broken), 'image')} that cannot be read left out: {_join_first(broken)}"
    if not allow_missing and not source.skip_broken:
        write_text(listed, "".join(f"{line}\n" for line in [*absent, *unreadable.values()]))
        raise KeptError(
            f"{problem}; all of them are listed in {listed}; add them, or prepare without them: --allow-missing "
            "(images that were read are kept)"
        )
    empty = [split for split, rows in done.items() if not rows.any()]
    if empty:
        raise KeptError(f"{problem}; no {empty[0]} images are left")
    if source.skip_broken:
        train = source.labels["train"]
        lost = np.setdiff1d(train, train[done["train"]])
        for label in lost[lost < len(source.paths)].tolist():
            raise UserError(f"{problem}; class {list(source.paths)[label]!r} has no training image left")
    source.remarks.append(problem)
    for split, rows in done.items():
        if not rows.all():
            compact(partial, split, rows)
    return {split: source.labels[split][rows] for split, rows in done.items()}


def compact(partial: Path, split: str, done: NDArray[np.bool_]) -> None:
    """Copy the rows of a split that are written to `<split>-images.npy`."""
    images = np.load(rows_file(partial, split), mmap_mode="r")
    with (partial / f"{split}-images.npy").open("wb") as file:
        write_header(file, (int(done.sum()), *images.shape[1:]))
        for start in range(0, len(done), ROWS_PER_COPY):
            file.write(images[start : start + ROWS_PER_COPY][done[start : start + ROWS_PER_COPY]].tobytes())
        file.flush()
        os.fsync(file.fileno())


def _problem(source: Source, done: dict[str, NDArray[np.bool_]], absent: list[str], unreadable: list[str]) -> str:
    problems = []
    if absent:
        total = sum(map(len, done.values()))
        problems.append(f"{len(absent):,} of {total:,} images are missing: {_join_first(absent)}")
        classes = list(source.paths)
        gone = [
            f"{split}/{classes[label]}"
            for split, rows in done.items()
            if split != ABOVE
            for label in np.setdiff1d(source.labels[split], source.labels[split][rows]).tolist()
        ]
        if gone:
            problems.append(f"whole classes: {_join_first(gone)}")
    if unreadable:
        problems.append(unreadable_images(unreadable))
    return "; ".join(problems)


def unreadable_images(errors: list[str], most: int = MAX_NAMED_IMAGES) -> str:
    """Return a line of the errors of all unreadable images: how many there are, and the first `most`."""
    shown = "; ".join(errors[:most]) + ("; ..." if len(errors) > most else "")
    return shown if len(errors) == 1 else f"{len(errors):,} images cannot be read: {shown}"


def _join_first(names: list[str]) -> str:
    return ", ".join(names[:MAX_NAMED_IMAGES]) + (f", ... ({len(names):,})" if len(names) > MAX_NAMED_IMAGES else "")
