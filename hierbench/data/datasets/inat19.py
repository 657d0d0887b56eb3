"""iNaturalist 2019: the competition's train+val archive, read as it is, split by the lists of Bertinetto et al."""

from __future__ import annotations

from collections.abc import Iterator

from hierbench.data.datasets.image_finder import Locator
from hierbench.data.datasets.split_lists import LICENCE, File, read_lists
from hierbench.data.source import Piece, Request, Source, identity_of
from hierbench.utils.errors import UserError

TREE = File("data/inaturalist19_isa.txt", sha256="a59981c759186c0d77687539f7d6acc0e85f549e2060c31b477d0326771e15b3")
SPLITS = File("dataset_splits/splits_inat19.zip", blob="f3f8837a3bf08256876cb8cdfdc3c48fc8b51dda")
ARCHIVE = "train_val2019.tar.gz"
URL = f"https://ml-inat-competition-datasets.s3.amazonaws.com/2019/{ARCHIVE}"
MD5 = "c60a6e2962c9b8ccbd458d12c8582644"
IMAGE_SIZE = (224, 224)  # images are stretched (docs/protocols.md, row 24)


def open_source(request: Request) -> Source:
    """Read tree and split lists; images are located and decoded later.

    Args:
        request: `source` is the archive, or a folder that holds its images at any depth.

    Raises:
        UserError: no source, or lists that are not to be had.
    """
    if request.source is None:
        raise UserError(
            f"iNaturalist 2019 is not downloaded by itself (82 GB): get {URL} (md5 {MD5}) and run: "
            f"hierbench data prepare inat19 --source {ARCHIVE}"
        )
    lists = read_lists(TREE, SPLITS, request.downloads, request.offline)
    locator = Locator(lists.names, IMAGE_SIZE)
    checksums, remarks = dict(lists.checksums), []
    source = request.source

    def pieces() -> Iterator[Piece]:
        yield from locator.pieces(source)
        for name, md5 in locator.md5s.items():
            checksums[name] = md5
            if md5 != MD5:
                remarks.append(f"{name} is not the official {ARCHIVE}: its md5 is {md5}")

    return Source(
        lists.paths, lists.labels, IMAGE_SIZE, pieces, lists.names, checksums, remarks, identity_of(source), LICENCE
    )
