"""Untrusted tar and zip archives, read in bounded time and memory; tar archives are read once, as a stream."""

import gzip
import hashlib
import io
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

from hierbench.utils.files import open_regular

# Exceptions of a damaged tar or zip file besides OSError; RuntimeError: encrypted, or nested too deeply.
_LIBRARIES = (tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, zlib.error, struct.error)
ARCHIVE_ERRORS = (*_LIBRARIES, EOFError, ValueError, RuntimeError, OverflowError, IndexError)
LARGEST_HEADER = 1 << 12  # bytes of a long name or of a member's extended attributes
ZIP_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # the others expand without bound before they can be stopped
TAR_METADATA = (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE, tarfile.XGLTYPE, b"X")


class Digested(io.RawIOBase):
    """An open archive, and the MD5 of the bytes read so far."""

    def __init__(self, path: Path) -> None:
        self.file = open_regular(path, follow=True)
        self.md5 = hashlib.md5(usedforsecurity=False)

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer."""
        block = self.file.read(len(buffer))
        self.md5.update(block)
        buffer[: len(block)] = block
        return len(block)

    def close(self) -> None:
        """Close the file."""
        self.file.close()
        super().close()


class _Header(tarfile.TarInfo):
    """A header that must be whole: tarfile takes a broken one after the first for the end of the archive."""

    @classmethod
    def fromtarfile(cls, tarfile_: tarfile.TarFile) -> Self:
        """Read the next header; only the zeros that end an archive end it."""
        try:
            member = super().fromtarfile(tarfile_)
        except tarfile.HeaderError as error:
            if isinstance(error, tarfile.EOFHeaderError):  # type: ignore[attr-defined]
                raise
            raise tarfile.ReadError(f"{error} where a header or the end should be") from None
        if member.size < 0:
            raise tarfile.ReadError("a member has a negative size")
        return member

    def _proc_member(self, tarfile_: tarfile.TarFile) -> Self:
        """Refuse headers that would take unbounded memory or time, before tarfile acts on them."""
        if self.size < 0 or self.type == tarfile.GNUTYPE_SPARSE:
            raise tarfile.ReadError("a member is sparse or has a negative size")
        if self.type in TAR_METADATA and self.size > LARGEST_HEADER:
            raise tarfile.ReadError(f"a header has more than {LARGEST_HEADER} bytes")
        return super()._proc_member(tarfile_)  # type: ignore[misc, no-any-return]

    def _proc_gnusparse_10(self, *_: object) -> None:
        raise tarfile.ReadError("a member is sparse")

    _proc_gnusparse_00 = _proc_gnusparse_01 = _proc_gnusparse_10


def open_tar(path: Path) -> "io.BufferedReader[Digested]":
    """Open a tar archive for `tar_members`; an OSError if it cannot be read or is not a regular file."""
    return io.BufferedReader(Digested(path), 1 << 20)


def tar_members(file: Any) -> Iterator[tuple[tarfile.TarFile, tarfile.TarInfo]]:
    """Yield the archive and its members one by one, in constant memory, to the end of a stream, gzipped or not.

    Raises:
        ARCHIVE_ERRORS: it is not a whole tar archive.
    """
    stream: Any = gzip.GzipFile(fileobj=file) if file.peek(2)[:2] == b"\x1f\x8b" else file
    with tarfile.open(fileobj=stream, mode="r|", tarinfo=_Header) as tar:
        while (member := tar.next()) is not None:
            tar.members = []  # type: ignore[attr-defined]  # not in its stubs; else it keeps every member it has passed
            yield tar, member
    while stream.read(1 << 20):
        pass  # the checksum of a gzip stream, which tarfile does not compare, is at its end


def tar_names(path: Path) -> Iterator[str]:
    """Yield the names of the files in a tar archive and in archives directly within it, without reading them.

    Raises:
        ARCHIVE_ERRORS: it is not a whole tar archive.
        OSError: it cannot be read.
    """
    with open_regular(path, follow=True) as file, tarfile.open(fileobj=file, mode="r:", tarinfo=_Header) as tar:
        for member in tar:
            content = tar.extractfile(member) if member.isfile() and member.name.endswith(".tar") else None
            if content is not None:
                with tarfile.open(fileobj=content, mode="r:", tarinfo=_Header) as inner:
                    yield from (image.name for image in inner if image.isfile())
            elif member.isfile():
                yield member.name


def zip_member(archive: zipfile.ZipFile, name: str, limit: int) -> bytes:
    """Return the content of a zip's member.

    Raises:
        KeyError: it is missing.
        ARCHIVE_ERRORS: it cannot be read, or has more than `limit` bytes.
    """
    member = archive.getinfo(name)
    if member.file_size > limit or member.compress_type not in ZIP_METHODS:
        raise zipfile.BadZipFile(f"{name[:80]} has more than {limit:,} bytes, or an odd compression")
    with archive.open(member) as file:
        content = file.read(limit + 1)
    if len(content) != member.file_size:
        raise zipfile.BadZipFile(f"{name[:80]} is not as long as the zip says")
    return content
