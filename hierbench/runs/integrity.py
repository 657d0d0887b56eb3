"""SHA-256 of a run's files: status.json, written last, is their manifest."""

import os
import stat
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from hierbench.utils.files import file_digest, read_bytes

RECORD_FILES = ("spec.json", "metrics.json", "history.csv", "environment.json")
PREDICTIONS = "predictions.npz"
RESULTS = (*RECORD_FILES, PREDICTIONS)
ALWAYS = {"spec.json", "metrics.json"}  # every finished run has these
STATUS_STATES = ("planned", "running", "failed", "done")
FINGERPRINT = {"sha256": str, "size": int}
OTHER = "is not the file that status.json records"


def checked_status(status: dict[str, Any]) -> dict[str, Any]:
    """Return the content of status.json; a ValueError unless it has a known state and, if finished, digests."""
    files = status.get("files", {})
    if not isinstance(files, dict) or not set(RESULTS) >= files.keys() or not all(map(_fits, files.values())):
        raise ValueError("its list of files is invalid")
    if status.get("state") not in STATUS_STATES:
        raise ValueError(f"it has the unknown state {status.get('state')!r}")
    if status["state"] == "done" and not files.keys() >= ALWAYS:
        raise ValueError("it has no digests of the files of a finished run")
    return status


def _fits(record: Any) -> bool:
    return isinstance(record, dict) and all(type(record.get(key)) is kind for key, kind in FINGERPRINT.items())


def fingerprints(folder: Path) -> dict[str, dict[str, Any]]:
    """Return {name: {"sha256", "size"}} of the result files that exist."""
    files = ((name, folder / name) for name in RESULTS if (folder / name).exists())
    return {name: {"sha256": file_digest(path), "size": path.lstat().st_size} for name, path in files}


def read_files(
    folder: Path, files: Mapping[str, Any], *, read_predictions: bool
) -> tuple[dict[str, bytes], dict[str, str]]:
    """Compare a finished run's files with the digests in status.json.

    Args:
        folder: of the run.
        files: {name: fingerprint} of its status.json.
        read_predictions: whether their digest is compared, and not their size alone; opening them compares it too.

    Returns:
        The contents of the files that are as recorded, without predictions, which may be absent; and {name:
        problem} of the others.
    """
    contents = dict[str, bytes]()
    wrong = dict[str, str]()
    place = str(folder)
    for name in RESULTS:
        if name not in files:
            if os.path.lexists(f"{place}/{name}"):
                wrong[name] = f"status.json has no digest of {name}"
        elif name == PREDICTIONS:
            path = folder / name
            if os.path.lexists(path) and not _is_whole(path, files[name], read=read_predictions):
                wrong[name] = f"{name} {OTHER}"
        else:
            try:
                content = read_bytes(f"{place}/{name}")
            except FileNotFoundError:
                wrong[name] = f"{name} is missing"
            except OSError:
                wrong[name] = f"{name} {OTHER}"
            else:
                if sha256(content).hexdigest() == files[name]["sha256"]:
                    contents[name] = content
                else:
                    wrong[name] = f"{name} {OTHER}"
    return contents, wrong


def _is_whole(path: Path, record: Mapping[str, Any], *, read: bool) -> bool:
    try:
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode) or status.st_size != record["size"]:
            return False
        return not read or file_digest(path) == record["sha256"]
    except OSError:
        return False
