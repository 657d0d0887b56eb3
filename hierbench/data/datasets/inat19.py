"""iNaturalist 2019: the competition's train+val archive, read as it is, split by the lists of Bertinetto et al."""

from hierbench.data.datasets.split_lists import listed_file, open_listed
from hierbench.data.source import Source, SourceRequest
from hierbench.utils.errors import UserError

INAT19_TREE = listed_file(
    "data/inaturalist19_isa.txt", sha256="a59981c759186c0d77687539f7d6acc0e85f549e2060c31b477d0326771e15b3"
)
INAT19_SPLITS = listed_file("dataset_splits/splits_inat19.zip", blob="f3f8837a3bf08256876cb8cdfdc3c48fc8b51dda")
INAT19_ARCHIVE = "train_val2019.tar.gz"
INAT19_URL = f"https://ml-inat-competition-datasets.s3.amazonaws.com/2019/{INAT19_ARCHIVE}"
MD5 = "c60a6e2962c9b8ccbd458d12c8582644"


def open_source(request: SourceRequest) -> Source:
    """Read tree and split lists; the source is the archive, or a folder that holds its images at any depth."""
    if request.source is None:
        raise UserError(
            f"iNaturalist 2019 is not downloaded automatically (82 GB): get {INAT19_URL} (md5 {MD5}) and run: "
            f"hierbench data prepare inat19 --source {INAT19_ARCHIVE}"
        )
    return open_listed(INAT19_TREE, INAT19_SPLITS, request, request.source, INAT19_ARCHIVE, MD5)
