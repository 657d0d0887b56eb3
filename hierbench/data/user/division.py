"""How the images of a user's dataset are divided into training, validation and test images."""

from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256

from hierbench.config.recipe_source import Splits
from hierbench.data.group_splits import draw_splits
from hierbench.data.user.photographs import Photograph, number_groups
from hierbench.data.writer import SPLITS
from hierbench.utils.errors import UserError

REMARKED = 5  # classes in a remark
IMBALANCED = 3.0  # largest to smallest class; above it, balanced sampling is worth a try
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
    images_by_class: dict[str, list[Photograph]] = {label: [] for label in classes}
    photographs, remarks = _keep_groups(sorted(photographs, key=lambda row: row.name), classes, splits)
    for photograph in photographs:
        images_by_class[photograph.label].append(photograph)
    divided: Divided = {split: [] for split in SPLITS}
    lacking: dict[str, list[str]] = {split: [] for split in SPLITS}
    for label, images in images_by_class.items():
        if splits.kind == "shares" and not any(image.split for image in images):
            parts = _divide_class(images, splits)
        else:
            parts = {split: [image for image in images if image.split == split] for split in SPLITS}
        for split, part in parts.items():
            divided[split] += part
            if not part:
                lacking[split].append(label)
    if lacking["train"]:
        raise UserError(f"classes without a training image: {', '.join(lacking['train'])}")
    for split in SPLITS:
        if not divided[split]:
            raise UserError(f"there are no {split} images; a class needs three images to be in all splits")
    return divided, [*remarks, *(_remark(split, lacking[split]) for split in ("val", "test") if lacking[split])]


def _keep_groups(
    photographs: list[Photograph], classes: Sequence[str], splits: Splits
) -> tuple[list[Photograph], list[str]]:
    """Return images with the split that their groups are drawn for, where shares are drawn, and remarks on groups."""
    num_groups = len({image.group for image in photographs if image.group})
    if not num_groups:
        return photographs, []
    if splits.kind != "shares":
        sides: dict[str, set[str]] = {}
        for image in photographs:
            sides.setdefault(image.group, set()).add(image.split)
        torn = sorted(group for group, where in sides.items() if group and len(where) > 1)
        shown = ", ".join(torn[:REMARKED]) + ", ..." * (len(torn) > REMARKED)
        return photographs, [f"{len(torn):,} of {num_groups:,} groups are in several splits: {shown}"] if torn else []
    targets, groups = number_groups(photographs, classes)
    shares = {"test": splits.test or 0.0, "val": splits.val or 0.0}
    drawn = draw_splits(targets, groups, [""] * len(photographs), splits.seed, shares)
    kept = [replace(image, split=split) for image, split in zip(photographs, drawn, strict=True)]
    return kept, [f"{num_groups:,} groups of images, each on one side of every split"]


def _divide_class(images: Sequence[Photograph], splits: Splits) -> Divided:
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
    num_val, num_test = (max(1, int(share * num + 0.5)) for share in (val, test))
    while num_val + num_test > num - 1:
        num_val, num_test = (num_val - 1, num_test) if num_val > num_test else (num_val, num_test - 1)
    return num_val, num_test


def _remark(split: str, labels: list[str]) -> str:
    shown = ", ".join(labels[:REMARKED]) + (", ..." if len(labels) > REMARKED else "")
    kind = "class has" if len(labels) == 1 else "classes have"
    return f"{len(labels):,} {kind} too few images for {split}: {shown}"


def imbalance(counts: dict[str, int], unit: str = "images") -> str:
    """Return the largest and the smallest class of {class: images}, or rows, and their ratio, in one line."""
    if len(set(counts.values())) == 1:
        return f"{next(iter(counts.values())):,} {unit} in each class"
    largest = max(counts, key=lambda label: counts[label])
    smallest = min(counts, key=lambda label: counts[label])
    ratio = counts[largest] / counts[smallest]
    ends = [f"{counts[label]:,} ({label})" for label in (smallest, largest)]
    line = f"{unit} per class: from {ends[0]} to {ends[1]}, ratio {ratio:.3g}"
    return line + ('; see train.sampling = "balanced"' if ratio > IMBALANCED else "")
