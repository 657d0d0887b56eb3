"""SHA-256 of a run's files: status.json, written last, is their manifest."""

import stat
from functools import lru_cache
from pathlib import Path
from typing import Any

from hierbench.utils.files import file_digest

RECORDS = ("spec.json", "metrics.json", "history.csv", "environment.json")
PREDICTIONS = "predictions.npz"
RESULTS = (*RECORDS, PREDICTIONS)
ALWAYS = {"spec.json", "metrics.json"}  # every finished run has these
STATES = ("planned", "running", "failed", "done")
FINGERPRINT = {"sha256": str, "size": int, "mtime_ns": int}


def checked_status(status: dict[str, Any]) -> dict[str, Any]:
    """Return the content of status.json; a ValueError unless it has a known state and, if finished, digests."""
    files = status.get("files", {})
    if not isinstance(files, dict) or not set(RESULTS) >= files.keys() or not all(map(_fits, files.values())):
        raise ValueError("its list of files is invalid")
    if status.get("state") not in STATES:
        raise ValueError(f"it has the unknown state {status.get('state')!r}")
    if status["state"] == "done" and not files.keys() >= ALWAYS:
        raise ValueError("it has no digests of the files of a finished run")
    return status


def _fits(record: Any) -> bool:
    return isinstance(record, dict) and {key: type(value) for key, value in record.items()} == FINGERPRINT


def fingerprints(folder: Path) -> dict[str, dict[str, Any]]:
    """Return {name: {"sha256", "size", "mtime_ns"}} of the result files that exist."""
    return {name: _fingerprint(folder / name) for name in RESULTS if (folder / name).exists()}


def _fingerprint(path: Path) -> dict[str, Any]:
    found = path.lstat()
    return {"sha256": file_digest(path), "size": found.st_size, "mtime_ns": found.st_mtime_ns}


def is_as_recorded(path: Path, record: dict[str, Any], *, trust_time: bool) -> bool:
    """Whether a file has its recorded digest; with `trust_time`, the recorded size and time suffice."""
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
    """Cache the digest of a copied file, whose time differs from the record."""
    return file_digest(path)
