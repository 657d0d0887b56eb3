"""One-hundred plant species leaves (Mallah, Cope, Orwell 2013), as in Kaggle's Leaf Classification: 990 silhouettes.

Of the ten images of each of the 99 species six are for training, one for validation and three for test.
"""

import csv

from hierbench.data.datasets.copied_images import CopiedImage, Copy, file_reader, find_copy, open_images
from hierbench.data.source import Source, SourceRequest
from hierbench.utils.files import read_given

LEAVES_COPY = Copy(
    "Leaf Classification (Kaggle; UCI repository, CC BY 4.0)",
    "CharlesXin/Leaf",
    "b40332e333c3aa7e5e800bb9633cbb96b357d63c",
    "e0a5784a59d89ae8e844adcefc7175af51f7b36d9730950916ed4dcdb73dd4b1",
)
LEAVES_SIZE = (224, 224)
LEAVES_PER_CLASS = {"test": 3, "val": 1}


def open_source(request: SourceRequest) -> Source:
    """Read `train.csv` (id, species) and `images/ID.jpg`."""
    root = find_copy(request, LEAVES_COPY, "leaves", "train.csv")
    rows = csv.DictReader(read_given(root / "train.csv", "train.csv").splitlines())
    files = [(f"images/{row.get('id')}.jpg", row.get("species") or "") for row in rows]
    images = [CopiedImage(name, species, file_reader(root / name)) for name, species in files]
    return open_images("leaves", root, images, LEAVES_SIZE, LEAVES_COPY.digest, LEAVES_PER_CLASS)
