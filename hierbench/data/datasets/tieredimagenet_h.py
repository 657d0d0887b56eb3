"""tieredImageNet-H: 608 classes of the user's own ILSVRC2012 images, split by the lists of Bertinetto et al."""

from hierbench.data.datasets.split_lists import listed_file, open_listed
from hierbench.data.source import Source, SourceRequest
from hierbench.utils.errors import UserError

TIERED_TREE = listed_file(
    "data/tiered_imagenet_isa.txt", sha256="db79a24707a00437abd809f9f845b19557321a21525aed486788907b20b5511f"
)
TIERED_SPLITS = listed_file(
    "dataset_splits/splits_tiered.zip", sha256="826a0ae5796983cf75f41277a48e5e07b34b2b7fca8347d0def117ff83a5a5de"
)


def open_source(request: SourceRequest) -> Source:
    """Read tree and split lists; the source holds ILSVRC2012's train and val images at any depth, or its tars."""
    if request.source is None:
        raise UserError(
            "tieredImageNet-H is built from your own copy of ImageNet (ILSVRC2012, train and val), which is never "
            "downloaded; with the folder of its images or tar archives run: "
            "hierbench data prepare tieredimagenet-h --source FOLDER"
        )
    return open_listed(TIERED_TREE, TIERED_SPLITS, request, request.source)
