"""The one file of a publication's evidence, `NAME/runs.zip`: the same bytes for the same records, read as a folder.

Its members are the files of a folder of records: `ID/FILE` of each run, requests, targets and the tree.
"""

import atexit
import re
import shutil
import zipfile
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import IO

from hierbench.utils.archives import ARCHIVE_ERRORS, zip_member
from hierbench.utils.errors import UserError
from hierbench.utils.files import open_regular, refuse_links, write_atomically

RUNS_ARCHIVE = "runs.zip"
EPOCH = (1980, 1, 1, 0, 0, 0)  # of every member
MEMBER = re.compile(r"([0-9a-f]{64}/)?[A-Za-z0-9_-]{1,64}(\.[a-z]{2,6})")
MAX_MEMBERS = 100_000
MAX_RECORD_BYTES = 1 << 30
MAX_ARCHIVE_BYTES = 1 << 32  # of all members, unpacked


def pack_folder(folder: Path) -> None:
    """Put all files of a folder of records into its archive, in the order of their names, and remove them."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != RUNS_ARCHIVE)

    def write(file: IO[bytes]) -> None:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for path in files:
                info = zipfile.ZipInfo(path.relative_to(folder).as_posix(), EPOCH)
                archive.writestr(info, path.read_bytes(), zipfile.ZIP_DEFLATED)

    write_atomically(folder / RUNS_ARCHIVE, write)
    for path in files:
        path.unlink()
    for path in sorted(folder.iterdir()):
        if path.is_dir():
            path.rmdir()


def opened(folder: Path) -> Path:
    """Return a folder with the files of a folder of records: itself, or one that its archive is unpacked in.

    The latter is removed when the program ends.

    Raises:
        UserError: the archive is damaged, too large, or has members that are no records.
    """
    path = folder / RUNS_ARCHIVE
    if not path.is_file():
        return folder
    status = refuse_links(folder, RUNS_ARCHIVE).stat()
    return _unpacked(path.resolve(), status.st_size, status.st_mtime_ns)


@cache
def _unpacked(path: Path, size: int, time: int) -> Path:
    del size, time  # of the file, so that a changed one is unpacked again
    folder = Path(mkdtemp(prefix="hierbench-runs-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    try:
        with open_regular(path) as file, zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            total = sum(member.file_size for member in members)
            if len(members) > MAX_MEMBERS or total > MAX_ARCHIVE_BYTES:
                raise zipfile.BadZipFile(f"it has {len(members):,} members of {total:,} bytes")
            for member in members:
                if not MEMBER.fullmatch(member.filename):
                    raise zipfile.BadZipFile(f"{member.filename[:80]!r} is no file of records")
                content = zip_member(archive, member.filename, MAX_RECORD_BYTES)
                target = folder / member.filename
                target.parent.mkdir(exist_ok=True)
                target.write_bytes(content)
    except (*ARCHIVE_ERRORS, OSError) as error:
        raise UserError(f"{path} cannot be read: {error}") from None
    return folder
