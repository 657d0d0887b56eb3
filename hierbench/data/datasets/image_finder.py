"""Finding listed images by their base name: under a folder at any depth, or in tar archives read as a stream.

Nothing is unpacked. An archive is read once, and so are archives within it (ILSVRC2012_img_train.tar holds one per
class); the memory it takes does not grow with it.
"""

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from hierbench.data.image import Images, UnreadableImageError, decode, decode_file
from hierbench.data.source import DamagedArchiveError, KeptError, Piece
from hierbench.utils.archives import ARCHIVE_ERRORS, open_tar, tar_members
from hierbench.utils.errors import UserError

ARCHIVES = (".tar", ".tar.gz", ".tgz")
NESTED = 3  # levels of archives within archives that are read; ImageNet's has one
MAX_IMAGE_BYTES = 1 << 26  # bytes of an image file; ImageNet's largest has 15 MB


class Locator:
    """The images to find, and those found so far.

    Args:
        names: per split the base names, in the order of the rows.
        image_size: (H, W) that images are stretched to.
    """

    def __init__(self, names: dict[str, list[str]], image_size: tuple[int, int]) -> None:
        self.wanted = {name: (split, row) for split, listed in names.items() for row, name in enumerate(listed)}
        self.place_by_name: dict[str, str] = {}
        self.image_size = image_size
        self.md5s: dict[str, str] = {}  # of the archives given by the user, once they are read

    def pieces(self, source: Path) -> Iterator[Piece]:
        """Yield a piece for every wanted image below a folder or in an archive.

        Archives in a folder are searched for images that are not there as files.

        Raises:
            UserError: the source does not exist, an archive is damaged, or a folder holds two files of one name.
        """
        if source.is_dir():
            yield from self._in_folder(source)
        elif source.is_file():
            yield from self._in_archive(source)
        else:
            raise UserError(f"no folder or archive {source}")

    def _in_folder(self, folder: Path) -> Iterator[Piece]:
        archives = []
        for path in files_below(folder):
            name = os.path.basename(path)
            if name in self.wanted:
                if name in self.place_by_name:
                    where = f"{self.place_by_name[name]} and {path}"
                    raise KeptError(f"{name} occurs twice: {where}; say which folder with --source")
                yield self._piece(name, path, partial(decode_file, Path(path), self.image_size, limit=MAX_IMAGE_BYTES))
            elif name.endswith(ARCHIVES):
                archives.append(Path(path))
        for archive in sorted(archives):
            if len(self.place_by_name) < len(self.wanted):
                yield from self._in_archive(archive)

    def _in_archive(self, archive: Path) -> Iterator[Piece]:
        members: list[tuple[str, int]] = []
        with open_tar(archive) as stream:
            try:
                for piece in self._in_tar(stream, str(archive), NESTED):
                    members.append((piece.split, piece.start))
                    yield piece
            except ARCHIVE_ERRORS as error:
                raise DamagedArchiveError(
                    f"{archive} is truncated or damaged ({error}); the {len(members):,} of {len(self.wanted):,} images "
                    "read from it are discarded",
                    members,
                ) from None
            self.md5s[archive.name] = stream.raw.md5.hexdigest()

    def _in_tar(self, stream: Any, where: str, nested: int) -> Iterator[Piece]:
        for tar, member in tar_members(stream):
            name = member.name.rpartition("/")[2]
            place = f"{where}/{member.name}"
            content = tar.extractfile(member) if member.isfile() else None
            if content is None:
                continue
            if name in self.wanted and name not in self.place_by_name:
                if member.size > MAX_IMAGE_BYTES:
                    yield self._piece(name, place, partial(_too_large, place))
                else:
                    yield self._piece(name, place, partial(decode, content.read(), place, self.image_size))
            elif name.endswith(ARCHIVES) and nested:
                yield from self._in_tar(content, place, nested - 1)

    def _piece(self, name: str, place: str, load: Callable[[], Images]) -> Piece:
        self.place_by_name[name] = place
        return Piece(*self.wanted[name], load)


def files_below(folder: Path) -> Iterator[str]:
    """Yield all files below a folder, links followed, each folder once, in sorted order."""
    seen = set[str]()
    folders = [str(folder)]
    while folders:  # os.walk of Python 3.11 calls itself, and a folder may be nested deeply
        place = folders.pop()
        real = os.path.realpath(place)
        if real in seen:
            continue
        seen.add(real)
        with os.scandir(place) as listing:
            entries = sorted(listing, key=lambda entry: entry.name)
        yield from (entry.path for entry in entries if not entry.is_dir())
        folders += reversed([entry.path for entry in entries if entry.is_dir()])


def _too_large(name: str) -> Images:
    raise UnreadableImageError(f"image {name} has more than {MAX_IMAGE_BYTES >> 20} MiB")
