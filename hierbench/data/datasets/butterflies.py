"""100 butterflies and moths (Kaggle, G. Piosenka): 13,524 photographs, pooled and split anew."""

from hierbench.data.datasets.copied_images import Copy, class_folders, find_copy, open_images
from hierbench.data.source import Source, SourceRequest

BUTTERFLIES_COPY = Copy(
    "100 butterflies and moths (Kaggle; CC0 by its page)",
    "pilicorredor/inteligencia",
    "a092ed84cb89ecb9d39d6039b1a655c47b249f0f",
    "cacdea4a55dbfdbb8015af9890fcdb03f3b2f45bb7d8a8c4dd1ace9bcd812015",
)
BUTTERFLIES_SIZE = (224, 224)
OTHER_NAMES = {"QUESTION MARK": "POLYGONIA"}  # of one class, in the copy's validation and test


def open_source(request: SourceRequest) -> Source:
    """Read `train|valid|test/CLASS/NUMBER.jpg`."""
    root = find_copy(request, BUTTERFLIES_COPY, "butterflies", "train/ADONIS")
    splits = ("train", "valid", "test")
    images = [image for split in splits for image in class_folders(root, f"{split}/*/*.jpg", names=OTHER_NAMES)]
    return open_images("butterflies", root, images, BUTTERFLIES_SIZE, BUTTERFLIES_COPY.digest)
