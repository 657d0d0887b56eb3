"""Atomic writing, and safe reading of files that may be corrupted or malicious (endless, a pipe, deeply nested JSON).

Any problem with a file is an OSError or a ValueError here.
"""

import errno
import json
import math
import os
import re
import secrets
import shutil
import stat
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import IO, Any

from hierbench.utils.errors import UserError
from hierbench.utils.processes import process_is_gone, this_machine

LARGEST_TEXT = 1 << 26  # bytes; records, lists and trees have a few MB
SQLITE = "sqlite:///"  # the beginning of a file's URI
JOURNALS = ("-journal", "-wal", "-shm")  # files that SQLite writes next to a database
MAX_JSON_DEPTH = 32  # JSON values within values; recipes and records have six


def temporary_beside(path: Path) -> Path:
    """Return a new temporary name next to a file; `remove_abandoned` knows which process it belongs to."""
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.{this_machine()}.{os.getpid()}.tmp")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary name next to `path`; rename it to `path` at the end, or remove it after an exception."""
    remove_abandoned(path.parent, path.name)  # left by killed processes, perhaps on a full disk
    temporary = temporary_beside(path)
    try:
        yield temporary
        temporary.replace(path)
    except OSError as error:
        if error.filename is not None and Path(error.filename) == temporary:
            error.filename = str(path)  # the name that the user knows
        raise
    finally:
        for suffix in ("", *JOURNALS):
            temporary.with_name(temporary.name + suffix).unlink(missing_ok=True)
    sync_folder(path.parent)


def write_atomically(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Let `write` fill a temporary file next to `path`, flush it to disk and rename it to `path`."""
    with replacing(path) as temporary, temporary.open("wb") as file:
        write(file)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Flush a folder's entries, so that a rename in it survives a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def refuse_links(root: Path, *parts: str) -> Path:
    """Return `root / parts[0] / ...`; a UserError if a part, but not the root, is a symbolic link.

    A folder received from someone else may contain links, so links are not followed.
    """
    path = root
    for part in parts:
        path = path / part
        if path.is_symlink():
            raise UserError(f"{path} is a symbolic link, which is not followed; replace it by its target")
    return path


def remove_made(folder: Path, names: re.Pattern[str], *, keep: bool = False) -> None:
    """Remove a folder's files with matching names; then, unless `keep`, the folder if it is empty."""
    if not folder.is_dir():
        return
    for entry in folder.iterdir():
        if names.fullmatch(entry.name) and (entry.is_symlink() or not entry.is_dir()):
            entry.unlink()
    with suppress(OSError):  # something else is in it
        if not keep:
            folder.rmdir()


def remove_abandoned(folder: Path, name: str = "") -> None:
    """Remove temporary files and folders, of one name or of all, that ended processes of this machine left."""
    with suppress(OSError):  # a folder that cannot be listed may still be writable
        for leftover in os.listdir(folder):
            *_, machine, pid, kind = ("", "", *leftover.split("."))
            # SQLite's journals have a longer suffix.
            ours = leftover.startswith(f".{name}") and kind.startswith("tmp") and machine == this_machine()
            if ours and process_is_gone(pid):
                path = folder / leftover
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                else:
                    path.unlink(missing_ok=True)


def is_database(path: Path) -> bool:
    """Whether there is a file that is not empty."""
    return path.is_file() and path.stat().st_size > 0


def make_database(uri: str, make: Callable[[str], object]) -> None:
    """Let a library create a SQLite database under a temporary name, and rename it when complete.

    It creates table by table, and a kill in between must not leave half of it. Does nothing if the database exists (an
    empty file does not count), or `uri` is not a SQLite file. Only one process may call it at a time. `make` gets the
    URI of a new file, creates the tables and leaves no transaction open.
    """
    path = Path(uri.removeprefix(SQLITE))
    if not uri.startswith(SQLITE) or path.name in ("", ":memory:") or is_database(path):
        return
    with replacing(path) as temporary:
        make(f"{SQLITE}{temporary}")


def write_bytes(path: Path, content: bytes | memoryview) -> None:
    """Write bytes atomically."""
    write_atomically(path, lambda file: file.write(content))


def write_text(path: Path, text: str) -> None:
    """Write text atomically; unpaired surrogates become question marks."""
    write_bytes(path, text.encode(errors="replace"))


def write_json(path: Path, content: Any) -> None:
    """Write JSON atomically, formatted by `as_json_text`."""
    write_text(path, as_json_text(content))


def as_json_text(content: Any) -> str:
    """Return content as JSON; NaN and infinity, which JSON does not have, become null."""
    return json.dumps(_only_finite(content), indent=1, allow_nan=False) + "\n"


def _only_finite(content: Any) -> Any:
    if isinstance(content, dict):
        return {key: _only_finite(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [_only_finite(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content


def open_regular(path: Path | str, *, follow: bool = False) -> IO[bytes]:
    """Open a file for reading; `follow` allows a symbolic link, as for a user's own files.

    Raises:
        OSError: it does not exist, or is not a regular file: a pipe waits for its writer, a device may never end.
    """
    return os.fdopen(_open_descriptor(path, follow), "rb")


def _open_descriptor(path: Path | str, follow: bool) -> int:
    flags = os.O_RDONLY | os.O_NONBLOCK  # otherwise opening a pipe waits
    try:
        descriptor = os.open(path, flags if follow else flags | os.O_NOFOLLOW)
    except OSError as error:
        if error.errno == errno.ELOOP and os.path.islink(path):
            raise OSError(errno.ELOOP, "is a symbolic link, which is not followed", str(path)) from None
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return descriptor


def read_bytes(path: Path | str, limit: int = LARGEST_TEXT, *, follow: bool = False) -> bytes:
    """Read a whole regular file; more than `limit` bytes are an OSError. `follow` as for `open_regular`."""
    descriptor = _open_descriptor(path, follow)
    try:  # without a file object, which takes longer than reading a small file
        content = block = os.read(descriptor, min(os.fstat(descriptor).st_size, limit) + 1)
        while block and len(content) <= limit:  # it grows, or does not know its size, as those of /proc
            content += (block := os.read(descriptor, min(1 << 20, limit + 1 - len(content))))
    finally:
        os.close(descriptor)
    if len(content) > limit:
        raise OSError(errno.EFBIG, f"more than {limit >> 20} MiB", str(path))
    return content


def read_text(path: Path, encoding: str = "utf-8", *, follow: bool = False) -> str:
    """Read a regular text file, line ends unchanged; wrongly encoded text is a ValueError."""
    return read_bytes(path, follow=follow).decode(encoding)


def read_given(path: Path, subject: str, encoding: str = "utf-8") -> str:
    """Read a text file that the user named, `subject` in errors; a UserError if it is not text."""
    try:
        return read_text(path, encoding, follow=True)
    except (OSError, ValueError) as error:
        reason = (isinstance(error, OSError) and error.strerror) or f"it is not UTF-8 text: {error}"
        raise UserError(f"{subject} cannot be read ({reason})") from None


def read_json(path: Path) -> Any:
    """Read a JSON file; errors as for `parse_json`."""
    return parse_json(read_text(path))


def parse_json(text: str) -> Any:
    """Parse JSON; unpaired surrogates become question marks.

    Raises:
        ValueError: it is not JSON, or has a key twice, an infinite number, an integer beyond 64 bits, or too deep
            nesting.
    """
    try:
        content = json.loads(
            text, parse_float=_finite, parse_int=_int64, parse_constant=_finite, object_pairs_hook=unique_keys
        )
        if text.count("{") + text.count("[") >= MAX_JSON_DEPTH:
            _check_depth(content, MAX_JSON_DEPTH)
        if "\\ud" in text or "\\uD" in text:
            content = json.loads(json.dumps(content, ensure_ascii=False).encode(errors="replace"))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return content


def read_json_object(path: Path) -> dict[str, Any]:
    """Read a JSON file that holds an object; anything else is a ValueError."""
    return parse_json_object(read_text(path))


def parse_json_object(text: str) -> dict[str, Any]:
    """Parse a JSON object; anything else is a ValueError."""
    content = parse_json(text)
    if not isinstance(content, dict):
        raise ValueError("it is not a JSON object")
    return content


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON; a ValueError if it has a key twice."""
    content = dict(pairs)
    if len(content) < len(pairs):
        ((key, _),) = Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f"it has the key {key[:40]!r} twice")
    return content


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"a number is not finite: {text[:40]}")
    return value


def _int64(text: str) -> int:
    if len(text) > 20 or not -(1 << 63) <= int(text) < 1 << 63:
        raise ValueError(f"an integer has more than 64 bits: {text[:40]}")
    return int(text)


def _check_depth(content: Any, depth: int) -> None:
    if depth == 0:
        raise ValueError(f"it is nested more than {MAX_JSON_DEPTH} deep")
    if isinstance(content, dict | list):
        for value in content.values() if isinstance(content, dict) else content:
            _check_depth(value, depth - 1)


def file_digest(path: Path, *, follow: bool = False) -> str:
    """Return the SHA-256 of a regular file; `follow` as for `open_regular`."""
    digest = sha256()
    with open_regular(path, follow=follow) as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
