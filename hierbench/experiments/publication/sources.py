"""The source of every method that ran, each kept once under its name and the digest of its code; none is imported."""

import os
import re
from importlib import resources
from pathlib import Path
from tokenize import TokenError

from hierbench.api.registry import Broken, digest_of_code, find_or_broken, is_installed
from hierbench.runs.store import Run, Store
from hierbench.utils.files import read_bytes, write_bytes
from hierbench.utils.text import one_line

FOLDER = "methods"
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")  # of a method whose source can be a file


def is_code(content: bytes, digest: str) -> bool:
    """Whether this is the Python source with a digest; it may be anything."""
    try:
        return digest_of_code(content) == digest
    except (SyntaxError, ValueError, TokenError, RecursionError, MemoryError):
        return False


def write_sources(records: Store, others: list[Store]) -> list[str]:
    """Write `methods/<name>-<first 12 of the code's digest>.py` for each method of published runs.

    A source is the installed method's if that is the code that ran, the file kept with the run, or one that was
    published before.

    Args:
        records: of the published runs, with the files of methods of their users.
        others: folders of records published before.

    Returns:
        a line for each method whose source is nowhere.
    """
    folder, notes, ran = records.root / FOLDER, list[str](), dict[tuple[str, str], Run]()
    for run in records.runs():
        method = run.spec().get("method")
        if isinstance(method, dict):
            ran.setdefault((str(method.get("name")), str(method.get("code"))), run)
    for (name, code), run in sorted(ran.items(), key=lambda one: one[0]):
        file = f"{name}-{code[:12]}.py"
        content = None
        if NAME.fullmatch(file):
            kept = [run.folder / f"{name}.py", *(other.root / FOLDER / file for other in others)]
            content = _installed(name, code) or next(filter(None, (_kept(path, code) for path in kept)), None)
        if content is None:
            notes.append(f"the source of {one_line(name, 100)} with code {code[:12]} is not here, and is not published")
            continue
        folder.mkdir(exist_ok=True)
        write_bytes(folder / file, content)
    return notes


def _installed(name: str, code: str) -> bytes | None:
    """Return the source of the installed method if it has this digest."""
    if not is_installed(name):
        return None
    found = find_or_broken(name)
    if isinstance(found, Broken) or found.code != code:
        return None
    if found.source is not None:
        return found.source.read_bytes()
    return resources.files("hierbench.methods").joinpath(f"{name}.py").read_bytes()


def _kept(path: Path, code: str) -> bytes | None:
    """Return a file's content if it is the source with this digest."""
    if not os.path.lexists(path) or path.parent.is_symlink():
        return None
    try:
        content = read_bytes(path)
    except OSError:
        return None
    return content if is_code(content, code) else None
