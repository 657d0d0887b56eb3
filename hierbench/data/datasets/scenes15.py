"""Fifteen scene categories (Lazebnik, Schmid, Ponce, CVPR 2006), 100 images of each for training, the others test.

15 of each class's training images are validation, and training images that are also in test are left out. Read from a
copy with this split, scaled to 200x200, or from the official folder, of which it is drawn.
"""

from dataclasses import replace

from hierbench.data.datasets.copied_images import Copy, class_folders, find_copy, open_images
from hierbench.data.source import Source, SourceRequest

SCENES_COPY = Copy(
    "15-Scene (for research only)",
    "jaaumeadrover/Landscape-Image-Classification",
    "7985b6b6e532f94f96da7dee74eb9a0ae7972083",
    "dba2cf18593e52ed4d0ff04b2abbf54a03cb7e42cb0b90a6d1eec8e64d83d3e5",
)
SCENES_SIZE = (200, 200)
VALIDATION_SCENES = 15  # of a class
OFFICIAL_PREFIXES = ("MIT", "CAL", "PAR")  # of the sources in the official names of the folders


def open_source(request: SourceRequest) -> Source:
    """Read `data/train|test/CLASS/*.jpg`, whose classes differ in case between the two, or `CLASS/*.jpg`."""
    root = find_copy(request, SCENES_COPY, "scenes15", "data/train", "MITcoast")
    if (root / "data").is_dir():
        images = [image for split in ("train", "test") for image in class_folders(root, f"data/{split}/*/*.jpg", split)]
        shares = {"val": VALIDATION_SCENES}
    else:
        images = class_folders(root, "*/*.jpg")
        counts = {name: sum(image.label == name for image in images) for name in {image.label for image in images}}
        shares = {"test": min(counts.values()) - 100, "val": VALIDATION_SCENES}
    names = {image.label: image.label[3 * image.label.startswith(OFFICIAL_PREFIXES) :].lower() for image in images}
    images = [replace(image, label=names[image.label]) for image in images]
    return open_images("scenes15", root, images, SCENES_SIZE, SCENES_COPY.digest, shares)
