"""Playing cards (Kaggle, G. Piosenka): 8,154 photographs of 53 cards, pooled and split anew."""

from hierbench.data.datasets.copied_images import Copy, class_folders, find_copy, open_images
from hierbench.data.source import Source, SourceRequest

CARDS_COPY = Copy(
    "playing cards (Kaggle; CC0 by its page)",
    "hiroonwijekoon/pytorch-cnn-playing-cards-classifier",
    "fd36c1609b33fcbf2b29321964219c9a93d13933",
    "a71bdf322efd78ab6a0b95a3501d41624c76128fcb817a09de9c3df69cd53173",
)
CARDS_SIZE = (224, 224)


def open_source(request: SourceRequest) -> Source:
    """Read `train|valid|test/CLASS/NUMBER.jpg`, in the copy below `dataset`."""
    root = find_copy(request, CARDS_COPY, "cards", "dataset/train", "train/joker")
    below = "dataset/" if (root / "dataset").is_dir() else ""
    splits = ("train", "valid", "test")
    images = [image for split in splits for image in class_folders(root, f"{below}{split}/*/*.jpg")]
    return open_images("cards", root, images, CARDS_SIZE, CARDS_COPY.digest)
