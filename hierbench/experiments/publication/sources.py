"""The source of every method that ran, each kept once under its name and the digest of its code; none is imported."""

import re
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from tokenize import TokenError

from hierbench.api.code import digest_of_code
from hierbench.runs.store import Run, Store
from hierbench.utils.files import read_bytes, write_bytes
from hierbench.utils.text import one_line

FOLDER = "methods"
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")  # of a method whose source can be a file
LARGEST = 1 << 20  # bytes of a source


def is_code(content: bytes, digest: str) -> bool:
    """Whether this is the Python source with a digest; it may be anything."""
    try:
        return digest_of_code(content) == digest
    except (SyntaxError, ValueError, TokenError, RecursionError, MemoryError):
        return False


def kept_source(name: str, code: str, run: Run, stores: Sequence[Store]) -> tuple[Path, bytes] | None:
    """Return the file of a method that is the code that ran, kept with a run or published with records; None without.

    Args:
        name: of the method.
        code: digest of its code.
        run: one of its runs.
        stores: folders of records.
    """
    file = f"{name}-{code[:12]}.py"
    if NAME.fullmatch(file):
        for path in (run.folder / f"{name}.py", *(store.root / FOLDER / file for store in stores)):
            try:
                content = b"" if path.parent.is_symlink() else read_bytes(path, LARGEST)
            except OSError:
                continue
            if is_code(content, code):
                return path, content
    return None


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
        content = _installed(name, code)
        if content is None and (kept := kept_source(name, code, run, others)):
            _, content = kept
        if content is None:
            notes.append(f"the source of {one_line(name, 100)} with code {code[:12]} is not here, and is not published")
            continue
        folder.mkdir(exist_ok=True)
        write_bytes(folder / f"{name}-{code[:12]}.py", content)
    return notes


def _installed(name: str, code: str) -> bytes | None:
    """Return the source of the installed method if it has this digest."""
    from hierbench.api.registry import Broken, find_or_broken, is_installed  # PyTorch

    if not is_installed(name):
        return None
    found = find_or_broken(name)
    if isinstance(found, Broken) or found.code != code:
        return None
    if found.source is not None:
        return found.source.read_bytes()
    return resources.files("hierbench.methods").joinpath(f"{name}.py").read_bytes()
