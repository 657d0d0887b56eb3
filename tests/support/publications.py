"""Publications in the form that tests change: their records as loose files, which are read like the archive."""

import zipfile
from pathlib import Path

from hierbench.runs.run_archive import RUNS_ARCHIVE


def loose(folder: Path) -> Path:
    """Unpack the archives of a folder of publications, remove them, and return the folder."""
    for path in [*folder.glob(f"*/{RUNS_ARCHIVE}"), *folder.glob(RUNS_ARCHIVE)]:
        with zipfile.ZipFile(path) as archive:
            archive.extractall(path.parent)
        path.unlink()
    return folder
