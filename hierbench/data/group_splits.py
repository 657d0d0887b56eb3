"""Splits that are drawn so that the images of one group are on one side."""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

DRAWN_SHARES = {"test": 0.25, "val": 0.15}  # of the images of each class; the others are for training


def draw_splits(
    targets: NDArray[np.int64],
    groups: NDArray[np.int64],
    fixed: Sequence[str],
    seed: int,
    shares: Mapping[str, float] = DRAWN_SHARES,
) -> list[str]:
    """Return the split of each image: groups whole, and of each class the share of test and validation, at least one.

    Class by class, groups in a random order go to test while they fit, then to validation, and the rest to training; a
    split without any gets the smallest of that with the most. A group of several classes is drawn with the first of
    them. A training image of a group that an official test split has is left out: "".

    Args:
        targets: [N] classes.
        groups: [N] numbers of groups.
        fixed: "train", "test" or "" of each image; images that are fixed to "test" are not drawn, and of those fixed
            to "train" only validation is.
        seed: of the draw.
        shares: {split: share of a class's drawn images}, a number of images from 1 on.
    """
    split_of_group: dict[int, str] = {int(groups[i]): "test" for i, split in enumerate(fixed) if split == "test"}
    left_out = {i for i, split in enumerate(fixed) if split != "test" and int(groups[i]) in split_of_group}
    drawn = [i for i, split in enumerate(fixed) if split != "test" and i not in left_out]
    rng = np.random.default_rng(seed)
    for target in range(int(targets.max()) + 1):
        places = [i for i in drawn if targets[i] == target]
        sizes = Counter(int(groups[i]) for i in places)
        limits = {
            split: int(share) if share >= 1 else max(1, round(share * len(places)))
            for split, share in shares.items()
            if not (split == "test" and any(fixed[i] for i in places))
        }
        filled = Counter({split: 0 for split in limits})
        for group, size in sizes.items():
            if group in split_of_group:
                filled[split_of_group[group]] += size
        free = [group for group in sorted(sizes) if group not in split_of_group]
        drawn_groups = [free[i] for i in rng.permutation(len(free))]
        for group in drawn_groups:
            split = next((name for name in limits if filled[name] + sizes[group] <= limits[name]), "train")
            split_of_group[group] = split
            filled[split] += sizes[group]
        for name in (name for name in (*limits, "train") if not filled[name]):  # no group was small enough
            numbers = Counter(split_of_group[group] for group in drawn_groups)
            rest = [group for group in drawn_groups if numbers[split_of_group[group]] == max(numbers.values())]
            split_of_group[min(rest, key=sizes.__getitem__)] = name
    return ["" if i in left_out else split_of_group[int(groups[i])] for i in range(len(targets))]
