"""`<dataset>-changes.json`: what each publication of a table changed, newest first."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hierbench.experiments.publication.difference import Changes
from hierbench.utils.files import read_json, write_json


def changes_file(folder: Path, dataset: str) -> Path:
    """Return the path of a dataset's list of changes."""
    return folder / f"{dataset}-changes.json"


def read_changes(folder: Path, dataset: str) -> list[dict[str, Any]]:
    """Return the entries, newest first; none where there is no list, or none that can be read."""
    try:
        content = read_json(changes_file(folder, dataset))
    except (OSError, ValueError):
        return []
    return [entry for entry in content if isinstance(entry, dict)] if isinstance(content, list) else []


def write_changes(folder: Path, dataset: str, found: Changes, because: str, earlier: list[dict[str, Any]]) -> None:
    """Write the list with a new first entry, unless nothing has changed."""
    now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    entry = {
        "date": now,
        "added": found.added,
        "removed": found.removed,
        "changed": found.changed,
        "because": because,
    }
    write_json(changes_file(folder, dataset), [*([] if found.is_empty else [entry]), *earlier])
