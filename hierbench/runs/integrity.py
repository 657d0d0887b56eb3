"""Checksums of a run's files, kept in its status.json, which is sealed by a checksum of itself."""

from __future__ import annotations

import json
import stat
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from hierbench.utils.files import as_json_text, file_digest, parse_json

RECORDS = ("spec.json", "metrics.json", "history.csv", "environment.json")
PREDICTIONS = "predictions.npz"
ALWAYS = {"spec.json", "metrics.json"}  # that every finished run has written


def sealed(status: dict[str, Any]) -> dict[str, Any]:
    """Return a status with a checksum of what else it holds."""
    return {**status, "checksum": _checksum(status)}


def unsealed(text: str) -> dict[str, Any]:
    """Return the status that a file's text holds.

    Raises:
        ValueError: it is not, to the byte, what was written.
    """
    content = parse_json(text)
    if not isinstance(content, dict):
        raise ValueError("it is no status")
    whole = text == as_json_text(content)
    if content.pop("checksum", None) != _checksum(content) or not whole:
        raise ValueError("its checksum is another")
    files = content.get("files", {})
    _check_files(files)
    if content.get("state") == "done" and not files.keys() >= ALWAYS:
        raise ValueError("it has no digests of the files of a finished run")
    return content


def _check_files(files: Any) -> None:
    """Raise a ValueError unless these are fingerprints: anybody can compute a checksum."""
    known = {"sha256": str, "size": int, "mtime_ns": int}
    for name, record in files.items() if isinstance(files, dict) else [("", files)]:
        fits = isinstance(record, dict) and record.keys() == known.keys()
        if name not in (*RECORDS, PREDICTIONS) or not fits or any(type(record[k]) is not known[k] for k in known):
            raise ValueError("its list of files is no such list")


def _checksum(content: dict[str, Any]) -> str:
    return sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def fingerprints(folder: Path) -> dict[str, dict[str, Any]]:
    """Return {name: {"sha256", "size", "mtime_ns"}} of a run's result files, those that exist."""
    return {name: _fingerprint(folder / name) for name in (*RECORDS, PREDICTIONS) if (folder / name).exists()}


def _fingerprint(path: Path) -> dict[str, Any]:
    found = path.lstat()
    return {"sha256": file_digest(path), "size": found.st_size, "mtime_ns": found.st_mtime_ns}


def is_as_recorded(path: Path, record: dict[str, Any], *, trust_time: bool) -> bool:
    """Whether a file has its recorded digest; with `trust_time` its recorded size and time are enough."""
    try:
        found = path.lstat()
        if not stat.S_ISREG(found.st_mode) or found.st_size != record["size"]:
            return False
        if trust_time and found.st_mtime_ns == record["mtime_ns"]:
            return True
        digest = _digest(path, found.st_size, found.st_mtime_ns) if trust_time else file_digest(path)
        return digest == str(record["sha256"])
    except OSError:
        return False


@lru_cache(maxsize=1024)
def _digest(path: Path, size: int, mtime_ns: int) -> str:
    """Return the digest of a copied file, read once per process."""
    return file_digest(path)
