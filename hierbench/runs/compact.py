"""Predictions in a compact form, small enough to publish, from which the paper's metrics follow exactly.

A file `predictions-compact.npz` holds the k best-ranked classes of each example and two digests: of the targets, which
are kept once per table and not per run, and of the predictions.npz that it was made from. 10,000 examples of up to
1,024 classes take less than 310 kB.

Shapes: N examples, K classes, k ranked classes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hierbench.hierarchy.label_tree import Hierarchy, IntArray
from hierbench.hierarchy.levels import distances_from
from hierbench.metrics.ranked_classes import top_classes
from hierbench.metrics.sums import (
    DEFAULT_KS,
    EXAMPLES_PER_CHUNK,
    contributions,
    metrics_from_contributions,
    mistakes_from_contributions,
    usable_ks,
)
from hierbench.utils.arrays import load_array, load_arrays
from hierbench.utils.files import refuse_links, write_atomically

COMPACT_FILE = "predictions-compact.npz"
TARGETS = "targets.npy"  # in a folder of published records: the targets [N] of all of them
COMPACT_ARRAYS = ("ranked", "shape", "targets_sha256", "source_sha256")
LARGEST_ARRAY = 1 << 27  # bytes once unpacked; as int64 up to 1 GiB: 20 of 65,536 classes of 3 million examples


@dataclass(frozen=True, eq=False)
class Compact:
    """Ranked predictions of one run.

    Attributes:
        ranked: [N, k] int64 class indices, best first.
        num_classes: K.
        targets: SHA-256 of the targets, see `digest_of_targets`.
        source: SHA-256 of the predictions.npz that this was made from.
    """

    ranked: IntArray
    num_classes: int
    targets: str
    source: str


def pack(scores: NDArray[Any], targets: IntArray, source: str) -> dict[str, NDArray[Any]]:
    """Return the arrays of a compact file.

    Args:
        scores: [N, K], larger = ranked earlier, ties to the lower class index.
        targets: [N] class indices.
        source: SHA-256 of the file that holds the scores, 64 hexadecimal digits.

    Raises:
        ValueError: a score is NaN, or shapes or digest do not fit.
    """
    if scores.ndim != 2 or targets.shape != scores.shape[:1] or not len(scores):
        raise ValueError(f"scores and targets must be [N, K] and [N], got {scores.shape} and {targets.shape}")
    return pack_ranked(ranked_classes(scores), scores.shape[1], targets, source)


def pack_ranked(ranked: IntArray, num_classes: int, targets: IntArray, source: str) -> dict[str, NDArray[Any]]:
    """Return the arrays of a compact file, of predictions that are ranked classes; more than 20 are not kept.

    Args:
        ranked: [N, k] class indices, best first.
        num_classes: K.
        targets: [N] class indices.
        source: as for `pack`.

    Raises:
        ValueError: shapes, classes or digest do not fit.
    """
    ranked = ranked[:, : max(usable_ks(DEFAULT_KS, num_classes))]
    num, k = ranked.shape
    if targets.shape != (num,) or not ranked.size:
        raise ValueError(f"{ranked.shape} ranked classes and {targets.shape} targets do not fit")
    if ranked.min() < 0 or ranked.max() >= num_classes:
        raise ValueError("a ranked class is unknown")
    return {
        "ranked": ranked.astype(np.min_scalar_type(num_classes - 1)),
        "shape": np.array([num, k, num_classes], dtype=np.int64),
        "targets_sha256": _member_bytes(digest_of_targets(targets)),
        "source_sha256": _member_bytes(source),
    }


def unpack(arrays: dict[str, NDArray[Any]]) -> Compact:
    """Return the content of the arrays of `pack`; a ValueError unless whole, with distinct classes in every row."""
    packed = arrays["ranked"]
    shape = arrays["shape"]
    if shape.shape != (3,) or shape.dtype.kind not in "iu":
        raise ValueError("its shape is not three integers")
    num, k, num_classes = map(int, shape)
    if num < 1 or not 1 <= k <= num_classes or k > max(usable_ks(DEFAULT_KS, num_classes)):
        raise ValueError(f"its shape ({num}, {k}, {num_classes}) is impossible")
    if packed.shape != (num, k) or packed.dtype.kind != "u":
        raise ValueError("its ranked classes do not fit its shape")
    ranked = packed.astype(np.int64)
    in_order = np.sort(ranked, axis=1)
    if in_order[:, -1].max() >= num_classes or (k > 1 and (in_order[:, 1:] == in_order[:, :-1]).any()):
        raise ValueError("a ranked class is unknown or ranked twice")
    digests = [_digest_in(arrays[name]) for name in ("targets_sha256", "source_sha256")]
    return Compact(ranked, num_classes, *digests)


def write_compact(folder: Path, scores: NDArray[Any], targets: IntArray, source: str) -> Path:
    """Write `predictions-compact.npz` into a folder and return its path; arguments and errors are those of `pack`."""
    return write_packed(folder, pack(scores, targets, source))


def write_packed(folder: Path, arrays: Mapping[str, Any]) -> Path:
    """Write the arrays of `pack` or `pack_ranked` into a folder, and return the file's path."""
    write_atomically(folder / COMPACT_FILE, lambda file: np.savez_compressed(file, **arrays))
    return folder / COMPACT_FILE


def read_compact(folder: Path) -> Compact:
    """Read the compact predictions in a folder; an OSError or ValueError if they are missing or damaged."""
    return unpack(read_packed(folder))


def read_packed(folder: Path) -> dict[str, NDArray[Any]]:
    """Read the arrays of the compact file in a folder; errors as for `read_compact`, which also checks them."""
    arrays = load_arrays(folder / COMPACT_FILE, *COMPACT_ARRAYS, largest=LARGEST_ARRAY)
    return dict(zip(COMPACT_ARRAYS, arrays, strict=True))


def write_targets(folder: Path, targets: IntArray) -> Path:
    """Write the targets [N] of all runs of a folder, in the smallest type that holds them, and return the path."""
    small = targets.astype(np.min_scalar_type(int(targets.max(initial=0))))
    write_atomically(folder / TARGETS, lambda file: np.save(file, small))
    return folder / TARGETS


def read_targets(folder: Path) -> IntArray:
    """Read the targets [N] of a folder; an OSError or ValueError if they are missing or damaged."""
    targets = load_array(refuse_links(folder, TARGETS))
    if targets.ndim != 1 or targets.dtype.kind not in "iu":
        raise ValueError(f"targets must be integers [N], got {targets.shape} {targets.dtype}")
    return targets.astype(np.int64)


def nearest_classes(best: IntArray, tree: Hierarchy, num: int = max(DEFAULT_KS)) -> IntArray:
    """Return the classes [N, num] nearest to the best ones [N], these first, ties to the lower index."""
    classes, places = np.unique(best, return_inverse=True)
    order = distances_from(torch.from_numpy(classes), tree).argsort(dim=1, stable=True)[:, :num]
    ranked: IntArray = order.numpy()[places]
    return ranked


def digest_of_targets(targets: NDArray[Any]) -> str:
    """Return the SHA-256 of targets [N] as little-endian 64-bit integers."""
    return sha256(np.ascontiguousarray(targets, dtype="<i8").data).hexdigest()


def ranked_classes(scores: NDArray[Any]) -> IntArray:
    """Return the classes [N, k] that the paper's metrics need, k = min(20, K) or the next smaller of their ks.

    Raises:
        ValueError: a score is NaN, or no real number.
    """
    k = max(usable_ks(DEFAULT_KS, scores.shape[1]))
    parts = [top_classes(part, k) for part in torch.from_numpy(scores).split(EXAMPLES_PER_CHUNK)]
    return torch.cat(parts).numpy()


def metrics_of_ranked(ranked: IntArray, targets: IntArray, hierarchy: Hierarchy) -> tuple[dict[str, float], list[int]]:
    """Return exactly the results of `evaluate` and `mistakes_by_distance`, from ranked classes.

    Args:
        ranked: [N, k] class indices, best first; hierdist beyond k is left out.
        targets: [N] class indices.
        hierarchy: over the K classes.
    """
    ks = [k for k in usable_ks(DEFAULT_KS, hierarchy.num_classes) if k <= ranked.shape[1]]
    sums = contributions(ranked, targets, hierarchy, ks)
    return metrics_from_contributions(sums, ks), mistakes_from_contributions(sums, hierarchy)


def _member_bytes(digest: str) -> NDArray[np.uint8]:
    values = np.frombuffer(bytes.fromhex(digest), dtype=np.uint8)
    if len(values) != 32:
        raise ValueError(f"{digest[:80]!r} is not a SHA-256")
    return values


def _digest_in(values: NDArray[Any]) -> str:
    if values.shape != (32,) or values.dtype != np.uint8:
        raise ValueError("a digest is not a SHA-256")
    return values.tobytes().hex()
