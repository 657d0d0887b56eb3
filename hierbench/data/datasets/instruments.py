"""30 musical instruments (Kaggle, G. Piosenka): 5,093 photographs, pooled and split anew."""

from hierbench.data.datasets.copied_images import Copy, class_folders, find_copy, open_images
from hierbench.data.source import Source, SourceRequest

INSTRUMENTS_COPY = Copy(
    "30 musical instruments (Kaggle; CC0 by its page)",
    "aizadaaskar/dl-homework",
    "e1f4d1754dd7503f5ccf911da8d22ee8f987ef36",
    "805cae5b2c39501c86fe450c3d63ab4a83611ac45a6b2fb4a3b9171a2481b04c",
)
INSTRUMENTS_SIZE = (224, 224)


def open_source(request: SourceRequest) -> Source:
    """Read `train|valid|test/CLASS/NUMBER.jpg`; the copy's validation and test have five images of a class."""
    root = find_copy(request, INSTRUMENTS_COPY, "instruments", "train/Xylophone")
    images = [image for split in ("train", "valid", "test") for image in class_folders(root, f"{split}/*/*.jpg")]
    return open_images("instruments", root, images, INSTRUMENTS_SIZE, INSTRUMENTS_COPY.digest)
