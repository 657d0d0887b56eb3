"""The source of a method as it was kept with its runs or published with their records; it is never imported."""

import re
from collections.abc import Sequence
from pathlib import Path
from tokenize import TokenError

from hierbench.api.code import digest_of_code
from hierbench.runs.record import Record
from hierbench.utils.files import read_bytes

FOLDER = "methods"
PYTHON = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}\.py"  # names of its files
LARGEST = 1 << 20  # bytes of a source


def is_code(content: bytes, digest: str) -> bool:
    """Whether this is the Python source with a digest; it may be anything."""
    try:
        return digest_of_code(content) == digest
    except (SyntaxError, ValueError, TokenError, RecursionError, MemoryError):
        return False


def kept_source(name: str, code: str, run: Record, folders: Sequence[Path]) -> tuple[Path, bytes] | None:
    """Return the file of a method that is the code that ran, kept with a run or published with records; None without.

    Args:
        name: of the method.
        code: digest of its code.
        run: one of its runs.
        folders: of records.
    """
    file = f"{name}-{code[:12]}.py"
    if re.fullmatch(PYTHON, file):
        for path in (run.folder / f"{name}.py", *(folder / FOLDER / file for folder in folders)):
            try:
                content = b"" if path.parent.is_symlink() else read_bytes(path, LARGEST)
            except OSError:
                continue
            if is_code(content, code):
                return path, content
    return None
