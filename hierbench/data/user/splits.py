"""Stratified splits: each class is divided by itself, in an order that only its images' names and the seed decide."""

from collections.abc import Sequence
from hashlib import sha256

from hierbench.config.source import Splits
from hierbench.data.user.listing import Photograph
from hierbench.data.writer import SPLITS
from hierbench.utils.errors import UserError

SHOWN = 5  # classes in a remark
Divided = dict[str, list[Photograph]]  # per split


def divide(photographs: Sequence[Photograph], classes: Sequence[str], splits: Splits) -> tuple[Divided, list[str]]:
    """Return the images of train, val and test, by class and then by name, and remarks on classes that a split lacks.

    Args:
        photographs: all images.
        classes: in target order; every image's label is one of them.
        splits: shares, or that the images know their split.

    Raises:
        UserError: a class without a training image, or a split without images.
    """
    of_class: dict[str, list[Photograph]] = {label: [] for label in classes}
    for photograph in sorted(photographs, key=lambda one: one.name):
        of_class[photograph.label].append(photograph)
    divided: Divided = {split: [] for split in SPLITS}
    lacking: dict[str, list[str]] = {split: [] for split in SPLITS}
    for label, images in of_class.items():
        parts = _shares(images, splits) if splits.kind == "shares" else _chosen(images)
        for split, part in parts.items():
            divided[split] += part
            if not part:
                lacking[split].append(label)
    if lacking["train"]:
        raise UserError(f"classes without a training image: {', '.join(lacking['train'])}")
    for split in SPLITS:
        if not divided[split]:
            raise UserError(f"there are no {split} images; a class needs three images to be in all splits")
    return divided, [_remark(split, lacking[split]) for split in ("val", "test") if lacking[split]]


def _chosen(images: Sequence[Photograph]) -> Divided:
    return {split: [image for image in images if image.split == split] for split in SPLITS}


def _shares(images: Sequence[Photograph], splits: Splits) -> Divided:
    """Divide one class: its images in the order of the SHA-256 of seed and name, test first, then val."""
    drawn = sorted(images, key=lambda image: sha256(repr((splits.seed, image.name)).encode(errors="replace")).digest())
    val, test = sizes(len(images), splits.val or 0.0, splits.test or 0.0)
    chosen = {"test": drawn[:test], "val": drawn[test : test + val], "train": drawn[test + val :]}
    return {split: sorted(chosen[split], key=lambda image: image.name) for split in SPLITS}


def sizes(num: int, val: float, test: float) -> tuple[int, int]:
    """Return how many of a class's images are for validation and test: rounded shares, but one where there are three.

    Training keeps at least one: a class of one image is not evaluated, one of two is not in validation.
    """
    if num < 3:
        return 0, num - 1
    of_val, of_test = (max(1, int(share * num + 0.5)) for share in (val, test))
    while of_val + of_test > num - 1:
        of_val, of_test = (of_val - 1, of_test) if of_val > of_test else (of_val, of_test - 1)
    return of_val, of_test


def _remark(split: str, labels: list[str]) -> str:
    shown = ", ".join(labels[:SHOWN]) + (", ..." if len(labels) > SHOWN else "")
    kind = "class has" if len(labels) == 1 else "classes have"
    return f"{len(labels):,} {kind} too few images for {split}: {shown}"


def imbalance(counts: dict[str, int]) -> str:
    """Return the largest and the smallest class of {class: images} and their ratio, in one line."""
    if len(set(counts.values())) == 1:
        return f"{next(iter(counts.values())):,} images in each class"
    largest, smallest = max(counts, key=lambda label: counts[label]), min(counts, key=lambda label: counts[label])
    ratio = counts[largest] / counts[smallest]
    ends = [f"{counts[label]:,} ({label})" for label in (smallest, largest)]
    line = f"images per class: from {ends[0]} to {ends[1]}, ratio {ratio:.3g}"
    return line + ('; see train.sampling = "balanced"' if ratio > IMBALANCED else "")


IMBALANCED = 3.0  # largest to smallest class; above it, balanced sampling is worth a try
