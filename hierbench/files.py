"""Writing files so that a kill or a full disk leaves either the old file, the new one or none, never a torn one."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import IO, Any


def write_atomically(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Let `write` fill a temporary file beside `path`, flush it to the disk and rename it to `path`."""
    # The random part keeps apart what processes of the same number on two machines write.
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Flush a folder's entries, so that a rename in it survives a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def process_is_gone(pid: str) -> bool:
    """Whether no process of this machine has the number, so that what it left half-written can be removed."""
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except (OSError, ValueError, OverflowError):
        return False
    return False


def remove_abandoned(folder: Path) -> None:
    """Remove the temporary files of `write_atomically` whose process is gone."""
    for left in folder.glob(".*.tmp"):
        if process_is_gone(left.name.split(".")[-2]):
            left.unlink(missing_ok=True)


def write_bytes(path: Path, content: bytes) -> None:
    """Write bytes atomically."""
    write_atomically(path, lambda file: file.write(content))


def write_text(path: Path, text: str) -> None:
    """Write text atomically."""
    write_bytes(path, text.encode())


def write_json(path: Path, content: Any) -> None:
    """Write JSON atomically; NaN becomes null, as JSON has no NaN."""
    write_text(path, as_json_text(content))


def as_json_text(content: Any) -> str:
    """Return what `write_json` writes."""
    return json.dumps(_without_nan(content), indent=1, allow_nan=False) + "\n"


def _without_nan(content: Any) -> Any:
    if isinstance(content, dict):
        return {key: _without_nan(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [_without_nan(value) for value in content]
    return None if isinstance(content, float) and content != content else content


def read_json(path: Path) -> Any:
    """Read JSON."""
    return json.loads(path.read_text(encoding="utf-8"))


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    digest = sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
