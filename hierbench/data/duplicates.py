"""Images that are the same in two splits, or in two classes: a note on data, which is left as it is."""

from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hierbench.data.source import Labels
from hierbench.utils.text import counted


def digest_of_pixels(image: NDArray[Any]) -> bytes:
    """Return a digest that equal images share."""
    return blake2b(np.ascontiguousarray(image).data, digest_size=16).digest()


def describe_duplicates(
    digests: Mapping[str, Iterable[bytes]], labels: Mapping[str, Labels], names: Mapping[str, Sequence[str]]
) -> list[str]:
    """Return a line for each pair of splits that share images, and one for classes of a split that do.

    Args:
        digests: of the N images of each split, see `digest_of_pixels`.
        labels: [N] of each split.
        names: of the images of each split.
    """
    first: dict[bytes, tuple[str, int]] = {}
    pairs: dict[tuple[str, str], list[tuple[str, str, bool]]] = {}
    for split, split_digests in digests.items():
        for row, digest in enumerate(split_digests):
            other_split, other_row = first.setdefault(digest, (split, row))
            differs = bool(labels[split][row] != labels[other_split][other_row])
            if other_split != split or (differs and other_row != row):
                pair = (names[split][row], names[other_split][other_row], differs)
                pairs.setdefault((split, other_split), []).append(pair)
    lines = []
    for (split, other_split), found_pairs in pairs.items():
        name, other_name, _ = found_pairs[0]
        num = len(found_pairs)
        num_other = sum(differs for *_, differs in found_pairs)
        where = f"also in {other_split}" if split != other_split else "also in another class"
        under = f", {num_other:,} under another label" if num_other and split != other_split else ""
        verb = counted(num, f"{split} image", ("is", "are"))
        lines.append(f"{verb} {where}{under}, first {name} as {other_name}")
    return lines
