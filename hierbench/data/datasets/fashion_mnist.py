"""Fashion-MNIST (Xiao, Rasul, Vollgraf 2017, MIT licence): 70,000 images of clothes, 28x28, in four idx files.

Test is the official one; a tenth of the training images of each class is validation.
"""

import gzip
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torchvision.datasets import FashionMNIST

from hierbench.data.datasets.copied_images import CopiedImage, open_images
from hierbench.data.image import Images
from hierbench.data.source import Source, SourceRequest
from hierbench.utils.download import Remote, obtain
from hierbench.utils.errors import UserError
from hierbench.utils.files import open_regular

FASHION_DIGEST = "9187bb74668ea7ce3ffb176dba1502e7e4649c7ddf705ce7ae96628e70ca27aa"
FASHION_SIZE = (28, 28)
FASHION_VALIDATION = 0.1
LARGEST_IDX = 1 << 26  # bytes; the training images have 47 million
FASHION_CLASSES = (  # by label
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
)  # fmt: skip


def open_source(request: SourceRequest) -> Source:
    """Read `train|t10k-images|labels-idxN-ubyte.gz`; the source is their folder, None downloads them."""
    root = request.source
    if root is None:
        root = request.downloads
        for name, _ in FashionMNIST.resources:
            remote = Remote("Fashion-MNIST (MIT licence)", FashionMNIST.mirrors[0] + name)
            obtain(remote, root, "get the four files elsewhere and give their folder with --source")
    images = []
    for prefix, split in (("train", "train"), ("t10k", "test")):
        pixels = _read_idx(root / f"{prefix}-images-idx3-ubyte.gz", 16).reshape(-1, *FASHION_SIZE)
        labels = _read_idx(root / f"{prefix}-labels-idx1-ubyte.gz", 8)
        if len(pixels) != len(labels) or not len(labels) or labels.max() >= len(FASHION_CLASSES):
            raise UserError(f"{root}: {prefix} has {len(pixels)} images and {len(labels)} labels from 0 to 9")
        images += [
            CopiedImage(f"{prefix}/{row:05d}", FASHION_CLASSES[label], pixels[row].tobytes, split, decode=_decode)
            for row, label in enumerate(labels)
        ]
    return open_images("fashion-mnist", root, images, FASHION_SIZE, FASHION_DIGEST, {"val": FASHION_VALIDATION})


def _decode(content: bytes, name: str, size: tuple[int, int]) -> Images:
    """Return grey pixels as a colour image [1, 3, 28, 28]."""
    return np.broadcast_to(np.frombuffer(content, dtype=np.uint8).reshape(1, 1, *size), (1, 3, *size))


def _read_idx(path: Path, header: int) -> NDArray[np.uint8]:
    """Return the bytes of an idx file after its header of 8 or 16 bytes."""
    try:
        with open_regular(path, follow=True) as raw, gzip.open(raw) as file:
            content = file.read(LARGEST_IDX)
    except (OSError, EOFError) as error:
        raise UserError(f"{path} cannot be read ({error})") from None
    return np.frombuffer(content, dtype=np.uint8, offset=min(header, len(content)))
