"""ETH-80 (Leibe and Schiele, CVPR 2003): eight categories of ten objects, 41 views of each; split by object.

Read from a copy, `1..8/1..10/CATEGORYn-*.png`, or from the official folders `CATEGORYn/CATEGORYn-*.png`.
"""

import re

from hierbench.data.datasets.copied_images import CopiedImage, Copy, file_reader, find_copy, images_below, open_images
from hierbench.data.source import Source, SourceRequest

ETH80_COPY = Copy(
    "ETH-80 (for research only)",
    "chenchkx/ETH-80",
    "9243466b9ca5f15765c88fdaf17c4f10c15a8574",
    "dced990502c25aae442eed50ce9390d1d726c52488892cffc162d9c2ecc6ecd0",
)
ETH80_SIZE = (128, 128)
OBJECTS = {"test": 0.3, "val": 0.2}  # of ten objects of a category


def open_source(request: SourceRequest) -> Source:
    """Read the views of each object, which its file names tell; the folders `maps` hold masks."""
    root = find_copy(request, ETH80_COPY, "eth80", "1/1", "apple1")
    images = []
    for path, name in images_below(root, "**/*.png"):
        match = re.fullmatch(r"(([a-z]+)\d+)-\d+-\d+\.png", path.name)
        if match and path.parent.name != "maps":
            images.append(CopiedImage(name, match[2], file_reader(path), group=match[1]))
    return open_images("eth80", root, images, ETH80_SIZE, ETH80_COPY.digest, OBJECTS)
