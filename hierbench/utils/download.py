"""Downloads: the expected digest is printed first, and only a complete, correct file is kept."""

import hashlib
import http.client
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hierbench.utils.console import say
from hierbench.utils.errors import UserError, error_line
from hierbench.utils.files import file_digest, read_bytes, refuse_links, write_atomically

ANSWER_SECONDS = 60.0  # seconds without an answer
SAY_EVERY = 10.0  # seconds between two lines of progress
DOWNLOAD_BLOCK = 1 << 20  # bytes


@dataclass(frozen=True)
class Remote:
    """A file to download.

    Attributes:
        title: for messages.
        url: where it is.
        sha256: its digest, or as much of its beginning as is published; "" if unknown.
        blob: its git blob id (SHA-1 of "blob <size>" and the content), where that is known instead.
        largest: bytes after which a download is aborted.
    """

    title: str
    url: str
    sha256: str = ""
    blob: str = ""
    largest: int = 1 << 33

    @property
    def name(self) -> str:
        """The file's name."""
        return self.url.rpartition("/")[2]

    def mismatch(self, path: Path) -> str:
        """Return how a file differs from the published one, "" if it does not."""
        if self.blob:
            content = read_bytes(path, self.largest, follow=True)
            digest = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
            return f"its git SHA-1 is {digest}, not {self.blob}" if digest != self.blob else ""
        digest = file_digest(path, follow=True)
        return f"its SHA-256 is {digest}, not {self.sha256}" if not digest.startswith(self.sha256) else ""

    def there(self, folder: Path) -> Path | None:
        """Return the file in a folder if it is as published, or any where no digest is published."""
        path = folder / self.name
        return path if path.is_file() and not ((self.sha256 or self.blob) and self.mismatch(path)) else None


def obtain(remote: Remote, folder: Path, way_out: str, check: Callable[[Path], object] | None = None) -> Path:
    """Return a remote file from a folder, downloaded with progress unless it is there.

    `check` raises a UserError for an unusable file; `way_out` ends the error with an alternative for the user.

    Raises:
        UserError: the download failed or is not the published file; nothing of it is kept.
    """
    existing = remote.there(folder)
    if existing is not None:
        return existing
    path = refuse_links(folder.parent, folder.name) / remote.name
    if remote.sha256:
        about = f" (SHA-256 {remote.sha256})"
    else:
        instead = f"it is compared with its git SHA-1, {remote.blob}" if remote.blob else "it cannot be verified"
        about = f"; its SHA-256 is unknown: {instead}"
    say(f"downloading {remote.title} from {remote.url}{about}")
    new_folder = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(path, lambda file: file.writelines(_blocks(remote)))
        if not remote.sha256 and not remote.blob:
            say(f"SHA-256 of {path.name}: {file_digest(path)}")
        elif mismatch := remote.mismatch(path):
            raise UserError(f"{mismatch}: it is not used")
        if check is not None:
            check(path)
    except (OSError, ValueError, http.client.HTTPException) as error:
        path.unlink(missing_ok=True)
        if new_folder:
            with suppress(OSError):
                folder.rmdir()
        reason = str(error) or error_line(error)
        raise UserError(f"{remote.title} could not be downloaded from {remote.url} ({reason}); {way_out}") from None
    return path


def _blocks(remote: Remote) -> Iterator[bytes]:
    """Yield the bytes that a server sends; a UserError if these are too many, or fewer than announced."""
    done = 0
    reported = time.monotonic()
    with urllib.request.urlopen(remote.url, timeout=ANSWER_SECONDS) as answer:
        total = int(answer.headers.get("Content-Length") or 0)
        while block := answer.read(DOWNLOAD_BLOCK):
            done += len(block)
            if done > remote.largest:
                raise UserError(f"it has more than {remote.largest >> 20} MiB")
            yield block
            if time.monotonic() - reported > SAY_EVERY:
                reported = time.monotonic()
                share = f" of {total >> 20} MiB, {100 * done / total:.0f}%" if total else " MiB"
                say(f"{remote.name}: {done >> 20}{share}")
    if total and done != total:
        raise UserError(f"it broke off after {done:,} of {total:,} bytes")
