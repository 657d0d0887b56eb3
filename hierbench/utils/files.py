"""Writing files so that a kill or a full disk leaves the old file, the new one or none; reading files of any content.

What is read may be damaged or made to harm: a pipe that never answers, a file without end, numbers or nesting without
measure. All of these are an OSError or a ValueError here, so that no reader above has to know of them.
"""

import errno
import json
import math
import os
import platform
import re
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import IO, Any

from hierbench.utils.errors import UserError

LARGEST_TEXT = 1 << 26  # bytes; records, lists and trees have a few MB
JOURNALS = ("-journal", "-wal", "-shm")  # what SQLite writes beside a database
DEEPEST = 32  # JSON values within values; recipes and records have six


def temporary_beside(path: Path) -> Path:
    """Return a new name beside a file, which `remove_abandoned` takes for this process' own."""
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.{_this_machine()}.{os.getpid()}.tmp")


@cache
def _this_machine() -> str:
    """Return what tells those apart who count their processes for themselves: machines and containers."""
    try:
        namespace = os.readlink("/proc/self/ns/pid")
    except OSError:  # no Linux: the name has to do
        namespace = ""
    return sha256(f"{platform.node()} {namespace}".encode()).hexdigest()[:8]


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary name beside `path`; rename it to `path` at the end, or remove it if that is an exception."""
    remove_abandoned(path.parent, path.name)  # of a program that was killed here, and may have filled the disk
    temporary = temporary_beside(path)
    try:
        yield temporary
        temporary.replace(path)
    except BaseException:
        for suffix in ("", *JOURNALS):
            temporary.with_name(temporary.name + suffix).unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def write_atomically(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Let `write` fill a temporary file beside `path`, flush it to the disk and rename it to `path`."""
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


def process_is_gone(pid: str) -> bool:
    """Whether no running process of this machine has the number, so that its temporary files can be removed.

    A zombie is gone: it has ended, and only its parent has not yet asked how.
    """
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except (OSError, ValueError, OverflowError):
        return False
    found = process_state(int(pid))
    return found is not None and found[0] in "ZX"


def process_state(pid: int) -> tuple[str, str] | None:
    """Return a process' state letter and its start in ticks since the boot, None where that is not known."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        return fields[0], fields[19]
    except (OSError, IndexError):
        return None


class LinkError(UserError):
    """A symbolic link where this program keeps its own files; following it would leave the folder."""


def refuse_links(root: Path, *parts: str) -> Path:
    """Return `root / parts[0] / parts[1] / ...`; the root itself may be a link, as the user names it.

    Whoever sends a folder may have put links in it, so none is followed: neither to read, nor to write, nor to remove.

    Raises:
        LinkError: one of the parts is a symbolic link.
    """
    path = root
    for part in parts:
        path = path / part
        if path.is_symlink():
            raise LinkError(f"{path} is a symbolic link, which is not followed; replace it by what it points to")
    return path


def remove_made(folder: Path, names: re.Pattern[str], *, keep: bool = False) -> None:
    """Remove the files of a folder whose whole name matches; then, unless `keep`, the folder if it is empty."""
    if not folder.is_dir():
        return
    for entry in folder.iterdir():
        if names.fullmatch(entry.name) and (entry.is_symlink() or not entry.is_dir()):
            entry.unlink()
    with suppress(OSError):  # something else is in it
        if not keep:
            folder.rmdir()


def set_time(path: Path, time_ns: int) -> None:
    """Set a regular file's times; another user's, or one with a second name elsewhere, is replaced by a copy first."""
    with open_regular(path) as file:
        found = os.fstat(file.fileno())
    if found.st_nlink > 1 or found.st_uid != os.geteuid():
        write_bytes(path, read_bytes(path))
    os.utime(path, ns=(time_ns, time_ns))


def remove_abandoned(folder: Path, name: str = "") -> None:
    """Remove the temporary files, of one file or of all, that processes of this machine left which are gone."""
    with suppress(OSError):  # a folder that cannot be listed can perhaps be written
        for left in os.listdir(folder):
            *_, machine, pid, kind = ("", "", *left.split("."))
            # A database may have a file of its own beside it, whose name goes on.
            ours = left.startswith(f".{name}") and kind.startswith("tmp") and machine == _this_machine()
            if ours and process_is_gone(pid):
                (folder / left).unlink(missing_ok=True)


def write_bytes(path: Path, content: bytes | memoryview) -> None:
    """Write bytes atomically."""
    write_atomically(path, lambda file: file.write(content))


def write_text(path: Path, text: str) -> None:
    """Write text atomically; a half of a surrogate pair is no text and becomes a question mark."""
    write_bytes(path, text.encode(errors="replace"))


def write_json(path: Path, content: Any) -> None:
    """Write JSON atomically, as `as_json_text` has it."""
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


def open_regular(path: Path, *, follow: bool = False) -> IO[bytes]:
    """Open a file for reading.

    Args:
        path: of the file.
        follow: whether it may be a symbolic link; so for a user's own files, not for records and prepared data.

    Raises:
        OSError: there is none, or it is no regular file: a pipe waits for its writer, a device may never end.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK  # else the opening of a pipe waits already
    try:
        descriptor = os.open(path, flags if follow else flags | os.O_NOFOLLOW)
    except OSError as error:
        if error.errno == errno.ELOOP and path.is_symlink():
            raise OSError(errno.ELOOP, "is a symbolic link, which is not followed", str(path)) from None
        raise
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_bytes(path: Path, limit: int = LARGEST_TEXT, *, follow: bool = False) -> bytes:
    """Read a regular file whole; one of more than `limit` bytes is an OSError. `follow` as for `open_regular`."""
    with open_regular(path, follow=follow) as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise OSError(errno.EFBIG, f"more than {limit >> 20} MiB", str(path))
    return content


def read_text(path: Path, encoding: str = "utf-8", *, follow: bool = False) -> str:
    """Read a regular file of text whole, with its line ends as they are; `follow` as for `open_regular`.

    Raises:
        OSError: it cannot be read, or is too large.
        ValueError: it is not in the encoding.
    """
    return read_bytes(path, follow=follow).decode(encoding)


def read_json(path: Path) -> Any:
    """Read JSON of the kind that `write_json` writes; see `parse_json`.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is no such JSON.
    """
    return parse_json(read_text(path))


def parse_json(text: str) -> Any:
    """Return what JSON says; a half of a surrogate pair becomes a question mark.

    Raises:
        ValueError: it is no JSON, holds a number that is not finite or an integer beyond 64 bits, or is nested more
            than `DEEPEST` deep.
    """
    try:
        content = json.loads(text, parse_float=_finite, parse_int=_int64, parse_constant=_finite)
        _check_depth(content, DEEPEST)
        if "\\ud" in text.lower():
            content = json.loads(json.dumps(content, ensure_ascii=False).encode(errors="replace"))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return content


def read_json_object(path: Path) -> dict[str, Any]:
    """Read JSON that is an object; anything else is a ValueError too."""
    return parse_json_object(read_text(path))


def parse_json_object(text: str) -> dict[str, Any]:
    """Return what JSON says that is an object; anything else is a ValueError too."""
    content = parse_json(text)
    if not isinstance(content, dict):
        raise ValueError("it is no JSON object")
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


def _check_depth(content: Any, left: int) -> None:
    if left == 0:
        raise ValueError(f"it is nested more than {DEEPEST} deep")
    if isinstance(content, dict | list):
        for value in content.values() if isinstance(content, dict) else content:
            _check_depth(value, left - 1)


def file_digest(path: Path, *, follow: bool = False) -> str:
    """Return the SHA-256 of a regular file; `follow` as for `open_regular`."""
    digest = sha256()
    with open_regular(path, follow=follow) as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
