"""The folder of a site: made beside its place and renamed, and replaced only where this command made it."""

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from hierbench.utils.errors import UserError
from hierbench.utils.files import read_json_object, remove_abandoned, sync_folder, temporary_beside

MARKER = ".hierbench-site"  # lists the files of a site, so that none of anybody else's is replaced


@contextmanager
def replacing_folder(target: Path) -> Iterator[Path]:
    """Yield a new folder beside `target` that takes its place at the end; after an exception `target` is as it was."""
    parent = target.parent
    try:
        parent.mkdir(parents=True, exist_ok=True)
        remove_abandoned(parent, target.name)
        staging = temporary_beside(target)
        staging.mkdir()
    except OSError as error:
        raise UserError(f"--output {target}: {error.strerror or error}") from None
    try:
        yield staging
        check_place(target)  # files may have been added there meanwhile
        if target.exists():
            old = temporary_beside(target)
            target.rename(old)
            try:
                staging.rename(target)
            except BaseException:
                old.rename(target)
                raise
            shutil.rmtree(old)
        else:
            staging.rename(target)
        with suppress(OSError):
            sync_folder(parent)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def check_place(target: Path) -> None:
    """Raise a UserError unless `target` is free, an empty folder, or a site that this command wrote and no more."""
    if target.is_symlink():
        raise UserError(f"--output {target} is a symbolic link, which is not followed")
    if not target.exists():
        return
    if not target.is_dir():
        raise UserError(f"--output {target} is not a folder")
    found = _files_in(target)
    if not found:
        return
    try:
        made = set(map(str, read_json_object(target / MARKER)["files"]))
    except (OSError, ValueError, KeyError, TypeError):
        raise UserError(f"--output {target} was not made by hierbench site build; give a new folder") from None
    if foreign := sorted(found - made - {MARKER}):
        more = f" and {len(foreign) - 1} more" if len(foreign) > 1 else ""
        raise UserError(f"--output {target} holds {foreign[0]}{more}, which is not of the site; move it away")


def check_apart(source: Path, target: Path) -> None:
    """Raise a UserError if what is read lies in what is replaced."""
    if source.resolve().is_relative_to(target.resolve()):
        raise UserError(f"{source} lies in --output {target}, which is replaced as a whole; give another folder")


def write_marker(folder: Path, files: Sequence[str]) -> None:
    """List the files of a site in it."""
    content = {"about": "made by hierbench site build, which replaces it", "files": sorted(files)}
    (folder / MARKER).write_text(json.dumps(content, indent=0) + "\n", encoding="utf-8")


def _files_in(folder: Path) -> set[str]:
    found = set()
    for path, _, names in os.walk(folder):
        found |= {os.path.relpath(os.path.join(path, name), folder) for name in names}
    return found
