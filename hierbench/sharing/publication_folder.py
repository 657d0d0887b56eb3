"""The folder of publications: replaced as a whole, by one process at a time, so that no reader sees half of it.

The new folder is made beside the old one, with copies of other files. The old one is moved away, and the new one takes
its place; the next publication restores the old one if moving it was the last that a killed process did.
"""

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from hierbench.leaderboard.formats import Format
from hierbench.utils.errors import UserError, unknown_name
from hierbench.utils.files import sync_folder
from hierbench.utils.lock import Lock, LostError

SUFFIXES: dict[Format, str] = {"json": ".json", "csv": ".csv", "latex": ".tex", "markdown": ".md"}  # of a table
PAGES: tuple[Format, ...] = ("markdown", "csv", "latex")  # with the same content as its JSON
VERDICT = "-verdict.json"
PUBLISHED_PICTURES = ("tradeoff", "severity")
ANSWERS_PICTURE = "answers"  # where answers are kept with the runs
ANSWERS = "-answers"  # with a suffix: the table of answers
PICTURES = tuple(f"-{kind}.svg" for kind in (*PUBLISHED_PICTURES, ANSWERS_PICTURE))
# Endings of the names of files beside a publication's records.
ENDINGS = "|".join(map(re.escape, [*SUFFIXES.values(), VERDICT, f"{ANSWERS}.md", f"{ANSWERS}.json", *PICTURES]))


def requested_formats(text: str) -> list[Format]:
    """Return the formats of a published table: its JSON and page, and those of a list; a UserError for others."""
    names = [name.strip() for name in text.split(",") if name.strip() not in ("", "none")]
    for name in names:
        if name not in ("csv", "latex"):
            raise unknown_name("format", name, ("csv", "latex", "none"))
    return ["json", *(kind for kind in SUFFIXES if kind in names), "markdown"]


def file_pattern(dataset: str) -> re.Pattern[str]:
    """Return a pattern of the names that a dataset's publication has in the folder."""
    return re.compile(rf"{re.escape(dataset)}({ENDINGS})?")


def existing_names(folder: Path, dataset: str) -> list[str]:
    """Return the names in the folder, which may be missing, that belong to a dataset's publication."""
    names = os.listdir(folder) if folder.is_dir() else ()
    return sorted(filter(file_pattern(dataset).fullmatch, names))


@contextmanager
def replaced(folder: Path, dataset: str | None) -> Iterator[Path]:
    """Yield a new folder that takes the place of `folder` at the end of the block; an exception leaves it as it was.

    Args:
        folder: may not exist yet.
        dataset: the publication to leave out; all other files and folders are taken over. None takes over nothing.

    Raises:
        UserError: the folder cannot be replaced, or another process took over.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        with Lock(folder.parent, f"{folder.name}.publish") as lock:
            _clear_up(folder)
            staging = folder.parent / f".{folder.name}.partial-{os.getpid()}"
            try:
                staging.mkdir()
                if dataset is not None:
                    _take_over(folder, staging, file_pattern(dataset))
                yield staging
                lock.check()
                _put(staging, folder)
            finally:
                shutil.rmtree(staging, ignore_errors=True)
    except LostError as error:
        raise UserError(f"{folder}: {error}; publish again") from None


def checked_place(folder: Path) -> Path:
    """Return the absolute path of a folder that can be replaced.

    Raises:
        UserError: it is no folder, a process works in it, or it is a repository's root.
    """
    folder = folder.resolve()
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is not a folder")
    if Path.cwd().is_relative_to(folder) or (folder / ".git").exists():
        raise UserError(f"{folder} is replaced as a whole; give a folder within it")
    if folder.exists() and not os.access(folder, os.W_OK):
        raise UserError(f"{folder} cannot be written")
    return folder


def _clear_up(folder: Path) -> None:
    """Restore or remove the files of a killed process; this one has the lock."""
    for leftover in sorted(folder.parent.glob(f".{folder.name}.old-*")):
        if not folder.exists() and not leftover.is_symlink():
            leftover.rename(folder)
    for kind in ("partial", "old"):
        for leftover in folder.parent.glob(f".{folder.name}.{kind}-*"):
            if not leftover.is_symlink():
                shutil.rmtree(leftover)


def _take_over(folder: Path, staging: Path, without: re.Pattern[str]) -> None:
    """Copy the files that are not part of a dataset's publication."""

    def dataset_files(path: str, names: list[str]) -> list[str]:
        dataset_names = [name for name in names if Path(path) == folder and without.fullmatch(name)]
        return [name for name in dataset_names if not (folder / name).is_symlink()]

    if folder.is_dir():
        shutil.copytree(folder, staging, symlinks=True, ignore=dataset_files, dirs_exist_ok=True)


def _put(staging: Path, folder: Path) -> None:
    """Let the new folder take the old one's place."""
    sync_folder(staging)
    if not folder.exists():
        staging.rename(folder)
    else:
        old = folder.parent / f".{folder.name}.old-{os.getpid()}"
        folder.rename(old)
        try:
            staging.rename(folder)
        except OSError:
            old.rename(folder)
            raise
        shutil.rmtree(old, ignore_errors=True)
    with suppress(OSError):
        sync_folder(folder.parent)
