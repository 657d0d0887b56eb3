"""Downloads: what a file will be compared with is said before it starts, and only what is whole and right is kept."""

from __future__ import annotations

import http.client
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import IO

from hierbench.utils.errors import UserError, one_line_of
from hierbench.utils.files import file_digest, read_text, refuse_links, write_atomically, write_text

TIMEOUT = 60.0  # seconds without an answer
SAY_EVERY = 10.0  # seconds between two lines of progress
BLOCK = 1 << 20  # bytes


class DownloadError(UserError):
    """A file could not be downloaded, or is not what it should be; nothing is kept of it."""


@dataclass(frozen=True)
class Remote:
    """A file to download.

    Attributes:
        title: for messages.
        url: where it is.
        sha256: its digest in full, "" where none is known for certain.
        instead: without a SHA-256, what else it is compared with afterwards, "" for nothing.
        largest: bytes after which a download is given up.
    """

    title: str
    url: str
    sha256: str = ""
    instead: str = ""
    largest: int = 1 << 33

    @property
    def name(self) -> str:
        """Of the file."""
        return self.url.rpartition("/")[2]

    def there(self, folder: Path) -> Path | None:
        """Return the file in a folder if it is as published, or as it came where nothing is published."""
        path = folder / self.name
        if not path.is_file():
            return None
        expected = self.sha256 or _recorded(path)
        return path if not expected or file_digest(path, follow=True) == expected else None


def fetch(remote: Remote, folder: Path) -> Path:
    """Download a file into a folder, with progress, and return it; where it has no known SHA-256, note what came.

    Raises:
        DownloadError: with the reason.
    """
    path = refuse_links(folder.parent, folder.name) / remote.name
    if remote.sha256:
        about = f" (SHA-256 {remote.sha256})"
    else:
        about = f"; no SHA-256 of it is known: {remote.instead or 'what comes cannot be verified'}"
    _say(f"downloading {remote.title} from {remote.url}{about}")
    digest, new_folder = sha256(), not folder.exists()

    def copy(target: IO[bytes]) -> None:
        for block in _blocks(remote):
            digest.update(block)
            target.write(block)
        if remote.sha256 and digest.hexdigest() != remote.sha256:
            raise DownloadError(f"its SHA-256 is {digest.hexdigest()}, not {remote.sha256}: it is not used")

    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(path, copy)
        if not remote.sha256:
            write_text(_record(path), f"{digest.hexdigest()}  {path.name}\n")
            _say(f"SHA-256 of {path.name}: {digest.hexdigest()}")
    except (OSError, ValueError, http.client.HTTPException) as error:
        if new_folder:
            with suppress(OSError):
                folder.rmdir()
        raise DownloadError(str(error) or one_line_of(error)) from None
    return path


def _blocks(remote: Remote) -> Iterator[bytes]:
    """Yield what a server sends; a DownloadError if that is too much, or less than it announced."""
    done, said = 0, time.monotonic()
    with urllib.request.urlopen(remote.url, timeout=TIMEOUT) as answer:
        total = int(answer.headers.get("Content-Length") or 0)
        while block := answer.read(BLOCK):
            done += len(block)
            if done > remote.largest:
                raise DownloadError(f"it has more than {remote.largest >> 20} MiB")
            yield block
            if time.monotonic() - said > SAY_EVERY:
                said = time.monotonic()
                share = f" of {total >> 20} MiB, {100 * done / total:.0f} %" if total else " MiB"
                _say(f"{remote.name}: {done >> 20}{share}")
    if total and done != total:
        raise DownloadError(f"it broke off after {done:,} of {total:,} bytes")


def discard(path: Path) -> None:
    """Remove a download that turned out to be no good."""
    path.unlink(missing_ok=True)
    _record(path).unlink(missing_ok=True)


def _record(path: Path) -> Path:
    """Return where the digest of a file that came is noted, in the form that `sha256sum -c` reads."""
    return path.with_name(f"{path.name}.sha256")


def _recorded(path: Path) -> str:
    try:
        return read_text(_record(path)).split(maxsplit=1)[0]
    except (OSError, ValueError, IndexError):
        return ""  # put there by hand


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
