"""Publications in the form that tests change: their records as loose files, which are read like the archive."""

import zipfile
from pathlib import Path

from hierbench.runs.run_archive import RUNS_ARCHIVE, opened

NAME = "grocery-finetuned"  # a published table of five seeds and six rows
SHIPPED = Path(__file__).resolve().parents[2] / "leaderboard/published" / NAME


def shipped_records() -> Path:
    """Return a folder with the records of the table as files."""
    return opened(SHIPPED)


def loose(folder: Path) -> Path:
    """Unpack the archives of a folder of publications, remove them, and return the folder."""
    for path in [*folder.glob(f"*/{RUNS_ARCHIVE}"), *folder.glob(RUNS_ARCHIVE)]:
        with zipfile.ZipFile(path) as archive:
            archive.extractall(path.parent)
        path.unlink()
    return folder
