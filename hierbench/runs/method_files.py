"""The source of a method as it was kept with its runs or published with their records; it is never imported."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from tokenize import TokenError

from hierbench.api.code import digest_of_code
from hierbench.runs.record import Record
from hierbench.utils.files import read_bytes

SOURCES_FOLDER = "methods"
PYTHON = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}\.py"  # names of its files
MAX_SOURCE_BYTES = 1 << 20  # bytes of a source


def is_code(content: bytes, digest: str) -> bool:
    """Whether this is the Python source with a digest; it may be anything."""
    try:
        return digest_of_code(content) == digest
    except (SyntaxError, ValueError, TokenError, RecursionError, MemoryError):
        return False


def source_name(run: Record) -> str:
    """Return the name of the published file of a run's method: content-addressed, so that all tables share it."""
    return f"{run.job.method.name}-{run.method_digest[:12]}.py"


def source_folders(records: Path) -> list[Path]:
    """Return where the sources of published runs are: in one folder for all tables, or with the records of one."""
    return [folder for folder in (records.parent / SOURCES_FOLDER, records / SOURCES_FOLDER) if not folder.is_symlink()]


def changed_sources(records: Iterable[Record], folders: Sequence[Path]) -> list[str]:
    """Return a line for each published source that is not the code by whose digest it is named."""
    digest_by_file = {source_name(run): run.method_digest for run in records if run.spec is not None}
    changed = list[str]()
    for folder in folders:
        for file, digest in sorted(digest_by_file.items()):
            path = folder / file
            if path.is_file() and not is_code(read_bytes(path, MAX_SOURCE_BYTES), digest):
                changed.append(
                    f"{folder.name}/{file} is not the code of its name, or was digested by an earlier version"
                )
    return changed


def kept_source(run: Record, folders: Sequence[Path] = ()) -> tuple[Path, bytes] | None:
    """Return the file of a run's method that is the code that ran, published or kept with it; None without.

    Args:
        run: of the method.
        folders: of published sources.
    """
    file = source_name(run)
    code = run.method_digest
    if re.fullmatch(PYTHON, file):
        for path in (*(folder / file for folder in folders), run.folder / f"{run.job.method.name}.py"):
            try:
                content = b"" if path.parent.is_symlink() else read_bytes(path, MAX_SOURCE_BYTES)
            except OSError:
                continue
            if is_code(content, code):
                return path, content
    return None
