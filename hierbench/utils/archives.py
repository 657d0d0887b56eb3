"""Archives that others made: tar and zip files may lie about sizes, hold links and devices, and never end.

A tar archive is read once, as a stream. Only regular files count; what no dataset's archive needs and a harmful one
may use (links, devices, sparse files, headers of megabytes) is refused or passed over.
"""

from __future__ import annotations

import errno
import gzip
import hashlib
import io
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Self

from hierbench.utils.files import open_regular

# What reading a damaged tar or zip file raises besides OSError; RuntimeError: encrypted, or nested too deeply.
DAMAGED = (
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    ValueError,
    RuntimeError,
    OverflowError,
    IndexError,
    gzip.BadGzipFile,
)
LARGEST_HEADER = 1 << 12  # bytes of a long name or of a member's extended attributes
RATIO, FREE = 200, 1 << 26  # an archive that expands to more than 64 MiB and 200 times its size is a bomb
KINDS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # the others expand without bound before they can be stopped
METADATA = (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE, tarfile.XGLTYPE, b"X")


class Counted(io.RawIOBase):
    """An open archive that counts: its bytes, their MD5, and what came out of them.

    Attributes:
        md5: of what was read so far.
        num_read: bytes read so far.
        num_expanded: bytes that decompressing gave so far, those of archives within it too.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file
        self.md5 = hashlib.md5(usedforsecurity=False)
        self.num_read = self.num_expanded = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer."""
        block = self.file.read(len(buffer))
        self.md5.update(block)
        self.num_read += len(block)
        buffer[: len(block)] = block
        return len(block)


class _Expanded:
    """A gzip stream that ends with an error when it is a bomb."""

    def __init__(self, file: Any, counted: Counted) -> None:
        self.stream, self.counted = gzip.GzipFile(fileobj=file), counted

    def read(self, size: int) -> bytes:
        """Read up to so many bytes."""
        block = self.stream.read(size)
        self.counted.num_expanded += len(block)
        if self.counted.num_expanded > FREE + RATIO * self.counted.num_read:
            raise tarfile.ReadError(f"it expands to more than {RATIO} times its size")
        return block


class _Header(tarfile.TarInfo):
    """A header that must be whole: tarfile takes a broken one after the first for the end of the archive."""

    @classmethod
    def fromtarfile(cls, tarfile_: tarfile.TarFile) -> Self:
        """Read the next header; only the zeros that end an archive end it."""
        try:
            member = super().fromtarfile(tarfile_)
        except tarfile.EOFHeaderError:  # type: ignore[attr-defined]
            raise
        except tarfile.HeaderError as error:
            raise tarfile.ReadError(f"{error} where a header or the end should be") from None
        if member.size < 0:
            raise tarfile.ReadError("a member has a negative size")
        return member

    def _proc_member(self, tarfile_: tarfile.TarFile) -> Self:
        """Refuse before tarfile acts on it what would take memory or time without bound."""
        if self.size < 0 or self.type == tarfile.GNUTYPE_SPARSE:
            raise tarfile.ReadError("a member is sparse or has a negative size")
        if self.type in METADATA and self.size > LARGEST_HEADER:
            raise tarfile.ReadError(f"a header has more than {LARGEST_HEADER} bytes")
        return super()._proc_member(tarfile_)  # type: ignore[misc, no-any-return]

    def _proc_gnusparse_10(self, *_: object) -> None:
        raise tarfile.ReadError("a member is sparse")

    _proc_gnusparse_00 = _proc_gnusparse_01 = _proc_gnusparse_10


@contextmanager
def opened(archive: Path) -> Iterator[tuple[Any, Counted]]:
    """Open an archive: yield a buffered stream for `tar_members`, and what counts its bytes.

    Raises:
        OSError: it can not be read, or is no regular file.
    """
    with open_regular(archive, follow=True) as file:
        counted = Counted(file)
        yield io.BufferedReader(counted, 1 << 20), counted


@contextmanager
def tar_stream(file: Any, counted: Counted) -> Iterator[tarfile.TarFile]:
    """Open a tar archive, compressed with gzip or not, within a buffered file; at the end all of it has been read.

    tarfile's own reading of gzip streams neither compares their checksum nor notices that their end is missing.

    Raises:
        DAMAGED: it is no whole tar archive, or a bomb.
    """
    stream: Any = _Expanded(file, counted) if file.peek(2)[:2] == b"\x1f\x8b" else file
    with tarfile.open(fileobj=stream, mode="r|", tarinfo=_Header) as tar:
        yield tar
    while stream.read(1 << 20):
        pass  # to the end of the stream, where its checksum is


def tar_members(tar: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """Yield the members of an archive one by one, in memory that does not grow with it."""
    while (member := tar.next()) is not None:
        tar.members = []  # type: ignore[attr-defined]  # else it remembers every member it has passed
        yield member


@contextmanager
def _within_the_file() -> Iterator[None]:
    """Make an offset before the beginning of a zip file, which only the operating system notices, one of `DAMAGED`."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.EINVAL:
            raise zipfile.BadZipFile("it refers to places that it does not have") from None
        raise


@_within_the_file()
def open_zip(path: Path) -> zipfile.ZipFile:
    """Open a zip file; a damaged one is one of `DAMAGED`."""
    return zipfile.ZipFile(path)


@_within_the_file()
def zip_member(archive: zipfile.ZipFile, name: str, limit: int) -> bytes:
    """Return the content of a zip's member.

    Raises:
        KeyError: there is none.
        DAMAGED: it can not be read, or has more than `limit` bytes.
    """
    member = archive.getinfo(name)
    if member.file_size > limit:
        raise zipfile.BadZipFile(f"{name[:80]} has more than {limit:,} bytes")
    if member.compress_type not in KINDS:
        raise zipfile.BadZipFile(f"{name[:80]} is compressed in a way that is not read")
    with archive.open(member) as file:
        content = file.read(limit + 1)
    if len(content) != member.file_size:
        raise zipfile.BadZipFile(f"{name[:80]} is not as long as the zip says")
    return content
